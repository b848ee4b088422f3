"""The deployment is checked against a running app: the service's own fixtures."""

from tests.service.conftest import backend, client, fake_folder, no_settings, open_app, serve

__all__ = ["backend", "client", "fake_folder", "no_settings", "open_app", "serve"]
