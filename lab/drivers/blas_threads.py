"""The number of threads of the OpenBLAS libraries in this process. NumPy, SciPy and the frameworks that multiply
matrices through them bring one each, every one with a thread pool of its own that only a call into the library
changes."""
import ctypes

SETTERS = ("openblas_set_num_threads", "openblas_set_num_threads64_", "scipy_openblas_set_num_threads",
           "scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads_64_")


def libraries():
    """The paths of the OpenBLAS libraries that are loaded now."""
    found = []
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            if "openblas" in path.rpartition("/")[2] and "/" + path not in found:
                found.append("/" + path)
    return found


def set_threads(threads):
    """Sets them all; -> how many libraries obeyed."""
    obeyed = 0
    for path in libraries():
        library = ctypes.CDLL(path)
        setter = next((getattr(library, name) for name in SETTERS if hasattr(library, name)), None)
        if setter is not None:
            setter(ctypes.c_int(threads))
            obeyed += 1
    return obeyed
