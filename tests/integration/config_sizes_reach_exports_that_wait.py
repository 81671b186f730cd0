"""An export that waits for its file has the size that was applied meanwhile when the file is there, and not one that was taken back.
Until then it is shown with the size that it had."""
from configurations import *
from harness import *

MiB = 1 << 20

with Lab() as lab:
    image = lab.path("vol1.img")
    server = lab.server([export("vol1", image, "1MiB")])
    listen = [{"tcp": f"127.0.0.1:{server.port}"}]

    def exported():
        return server.status()["exports"][0]

    def apply_while_away(size, *options):
        before = exported()["size_bytes"]
        os.rename(image, image + ".away")
        wait_until("it waits", lambda: exported()["state"] == "waiting")
        write_config(server, {"listen": listen, "exports": [export("vol1", image, size)]})
        document, _ = config(server, "apply", *options)
        check(changes(document) == {"export vol1": "changed"}, document)
        check(exported()["size_bytes"] == before, exported())

    def come_back_with(size):
        os.rename(image + ".away", image)
        wait_until("it is ready", lambda: exported()["state"] == "ready")
        check(exported()["size_bytes"] == os.path.getsize(image) == size, (exported(), os.path.getsize(image)))

    apply_while_away("2MiB")
    come_back_with(2 * MiB)
    apply_while_away("4MiB", "--confirm-within", "1s")
    wait_until("it is taken back", lambda: "export vol1: changed (size)" in
        server.log().partition("the change is taken back")[2])
    come_back_with(2 * MiB)
    # What lies beyond a smaller size is not cut off: that is told.
    apply_while_away("1MiB")
    come_back_with(2 * MiB)
    told = [line for line in server.log().splitlines() if "configured while it waited" in line]
    check(len(told) == 1 and "would be lost" in told[0], told)
