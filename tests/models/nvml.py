"""NVIDIA's management library as a test sets it; `sys.modules["pynvml"] = Nvml()` puts it into place."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any


class Nvml(ModuleType):
    """NVML as its binding shows it; a handle is the index or the name by which it was asked for."""

    class NVMLError(Exception):
        pass

    def __init__(self, *, fails: str = "", total: int = 1000, free: int = 100) -> None:
        super().__init__("pynvml")
        self._fails, self.total, self.free = fails, total, free

    def nvmlInit(self) -> None:
        self._check("init")

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:
        return int(uuid.partition("-")[2])

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        self._check("memory")
        return SimpleNamespace(total=self.total + handle, free=self.free + handle)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        self._check("utilisation")
        return SimpleNamespace(gpu=40 + handle)

    def _check(self, step: str) -> None:
        if self._fails == step:
            raise Nvml.NVMLError
