"""What tests of the core and of plugins stand on: scripted models and servers."""
