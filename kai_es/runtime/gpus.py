"""UUIDs of the GPUs that this process can see: NVML, or the program `nvidia-smi` without it."""

import ctypes
import subprocess
from typing import Any, Final

from kai_es.binder.reserve import ReserveError

NVML: Final = "libnvidia-ml.so.1"
SMI: Final = "nvidia-smi"
SMI_S: Final = 30.0  # a driver that does not answer by then is broken
_UUID_MAX: Final = 96  # NVML_DEVICE_UUID_V2_BUFFER_SIZE


def uuids() -> list[str]:
    """All GPUs, in NVML's order.

    Raises:
        ReserveError: neither way works; says why.
    """
    try:
        library = ctypes.CDLL(NVML)
    except OSError as exc:
        return _by_program(f"{NVML}: {exc}")
    return by_library(library)


def by_library(library: Any) -> list[str]:
    """As NVML says it.

    Raises:
        ReserveError: a call failed.
    """
    _call(library, "nvmlInit_v2")
    try:
        count = ctypes.c_uint()
        _call(library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
        return [_uuid(library, number) for number in range(count.value)]
    finally:
        library.nvmlShutdown()


def _uuid(library: Any, number: int) -> str:
    device = ctypes.c_void_p()
    _call(library, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(number), ctypes.byref(device))
    text = ctypes.create_string_buffer(_UUID_MAX)
    _call(library, "nvmlDeviceGetUUID", device, text, ctypes.c_uint(_UUID_MAX))
    return text.value.decode()


def _call(library: Any, name: str, *arguments: Any) -> None:
    code = getattr(library, name)(*arguments)
    if code != 0:
        raise ReserveError(f"{name} failed with NVML error {code}")


def _by_program(no_library: str) -> list[str]:
    command = [SMI, "--query-gpu=uuid", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SMI_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise ReserveError(f"no way to GPUs: {no_library}; {SMI}: {exc}") from exc
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise ReserveError(f"{SMI} ended with {done.returncode}: {said}")
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]
