"""The settings of the service."""

from cerberank_service.settings.environment import SettingsError, read_settings
from cerberank_service.settings.fields import Settings

__all__ = ["Settings", "SettingsError", "read_settings"]
