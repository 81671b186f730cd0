"""NBD clients by libnbd, for tests of what a device answers; without libnbd the test is skipped."""
import importlib.util

from harness import skip

if not importlib.util.find_spec("nbd"):
    skip("python3-libnbd is not installed")
import nbd


def connected(lab, device, client="client"):
    """A client of a device of the rnbd-client of that name."""
    h = nbd.NBD()
    h.connect_uri(lab.uri(device, client))
    return h


def error_of(call, *arguments):
    """The errno that the call fails with, or 0."""
    try:
        call(*arguments)
    except nbd.Error as error:
        return error.errnum
    return 0
