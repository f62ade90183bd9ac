"""`rllm model`: providers of models, their keys, and the default model of evaluations."""

import json
import sys
from collections.abc import Mapping
from typing import Any

import attrs
import click

from rllm_core.errors import ConfigError
from rllm_core.providers import (
    Local,
    Provider,
    Wire,
    checked_url,
    default_model,
    forget,
    key_of,
    providers,
    remember,
    resolve_model,
    set_default_model,
)

__all__ = ["model"]


@click.group()
def model() -> None:
    """Set up providers of models, and choose the default model of evaluations."""


@model.command()
@click.argument("provider", required=False)
@click.option("--base-url", metavar="URL", help="Its address, ending in its version path.")
@click.option("--api-key-env", metavar="VAR", help="The environment variable that holds its key.")
@click.option("--store-key", is_flag=True, help="Store a key: asked for, or read from stdin.")
def setup(
    provider: str | None, base_url: str | None, api_key_env: str | None, store_key: bool
) -> None:
    """Set up a provider: one of the known ones, or any OpenAI-compatible server.

    On a terminal what is missing is asked for. A key is never an argument, where others could
    see it; a stored one lies in a file that only you can read.
    """
    asking = sys.stdin.isatty() and not (base_url or api_key_env or store_key)
    name = provider or (_ask("Provider", default="openai") if asking else None)
    if not name or "/" in name or name != name.strip():
        raise ConfigError("which provider?", remedy="rllm model setup NAME [--base-url URL]")
    known = providers().get(name)
    if base_url is None:
        base_url = known.base_url if known else (_ask("Base URL") if asking else None)
    if base_url is None:
        names = ", ".join(providers())
        raise ConfigError(
            f"provider '{name}' is not known, so its address is needed",
            remedy=f"--base-url URL   known ones: {names}",
        )
    variable = api_key_env or (known.api_key_env if known else None)
    made = Provider(name, checked_url(base_url), variable)
    if asking and variable and not key_of(made):
        store_key = click.confirm(f"{variable} is not set. Store a key for {name}?", err=True)
    remember(made, _key(name) if store_key else None)
    click.echo(f"{name}: {made.base_url}, {_key_state(providers()[name])}")
    click.echo(f"next: rllm eval BENCHMARK --model {name}/MODEL   or   rllm model use {name}/MODEL")


@model.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one object a provider.")
def list_command(as_json: bool) -> None:
    """List the providers, and whether their keys are there."""
    from rllm_core.cli.table import columns

    found = providers().values()
    if as_json:
        data = {"default": default_model(), "providers": [_facts(each) for each in found]}
        click.echo(json.dumps(data, indent=2))
        return
    rows = [("PROVIDER", "BASE URL", "KEY")]
    rows += [(each.name, each.base_url, _key_state(each)) for each in found]
    for line in columns(rows):
        click.echo(line)
    click.echo(f"default model: {default_model() or 'none; rllm model use NAME sets it'}")


@model.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(name: str | None, as_json: bool) -> None:
    """Show what a model's name stands for (default: the default model)."""
    name = name or default_model()
    if name is None:
        raise ConfigError("no default model is set", remedy="rllm model use provider/model")
    known = providers().get(name)
    facts = _facts(known) if known else _resolved(name)
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    for key, value in facts.items():
        click.echo(f"{key.replace('_', ' ')}: {_words(value)}")


@model.command()
@click.argument("name")
def use(name: str) -> None:
    """Choose the model of evaluations that name none."""
    found = resolve_model(name)
    set_default_model(name)
    click.echo(f"evaluations that name no model use {name}")
    if isinstance(found, Wire) and found.provider.api_key_env and not key_of(found.provider):
        click.echo(f"its key is still missing: export {found.provider.api_key_env}=…", err=True)


@model.command()
@click.argument("provider")
def remove(provider: str) -> None:
    """Forget what was set up for a provider, its stored key included."""
    forget(provider)
    click.echo(f"{provider}: removed")


def _ask(what: str, default: str | None = None) -> str:
    return str(click.prompt(what, default=default, err=True)).strip()


def _key(name: str) -> str:
    """A key from the terminal, unseen, or from standard input."""
    if sys.stdin.isatty():
        key = str(click.prompt(f"Key for {name}", hide_input=True, err=True))
    else:
        key = sys.stdin.readline()
    if not key.strip():
        raise ConfigError("the key is empty", remedy="pipe it in, or type it on a terminal")
    return key.strip()


def _key_state(provider: Provider) -> str:
    """Whether a key is there, never the key."""
    variable = provider.api_key_env
    if provider.stored_key:
        return f"stored ({variable} comes first)" if variable else "stored"
    if variable is None:
        return "needs none"
    return f"{variable} is set" if key_of(provider) else f"{variable} is not set"


def _facts(provider: Provider) -> dict[str, Any]:
    shown = attrs.asdict(provider, filter=lambda a, _: a.name in {"name", "base_url", "custom"})
    return {
        **shown,
        "api_key_env": provider.api_key_env,
        "key": _key_state(provider),
        "ready": provider.api_key_env is None or bool(key_of(provider)),
    }


def _resolved(name: str) -> Mapping[str, Any]:
    found = resolve_model(name)
    if isinstance(found, Local):
        directory = str(found.directory) if found.directory else None
        return {"name": name, "kind": "local", "loads": found.source, "directory": directory}
    return {
        "name": name,
        "kind": "served",
        "model": found.model,
        "base_url": found.base_url,
        "key": _key_state(found.provider),
    }


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
