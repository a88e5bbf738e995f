#!/usr/bin/env python3
# Reports to a Trivet head that this system is up, which ends its installation. It reports once, to any head, with the
# errors of cloud-init.
import json
import os
import sys
import syslog
import time
import urllib.error
import urllib.request

# HERE


def leave():
    """Continues in the background, without cloud-init's pipes: the boot does not wait."""
    if os.fork() > 0:
        sys.exit(0)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)


def result():
    """Returns the body of the report: the errors that cloud-init wrote."""
    try:
        with open(RESULT, encoding="utf-8", errors="replace") as f:
            errors = json.load(f)["v1"]["errors"]
        return json.dumps({"errors": [str(e)[:500] for e in errors[:8]]}).encode()
    except (OSError, ValueError, KeyError, TypeError) as e:
        syslog.syslog("trivet: %s: %s" % (RESULT, e))
        return b""


def report(url, body):
    """Returns whether a head accepted the report."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        direct.open(urllib.request.Request(url, data=body, method="POST"), timeout=5).read(1024)
        return True
    except (OSError, ValueError, urllib.error.URLError) as e:
        syslog.syslog("trivet: %s: %s" % (url.split("/phone-home/")[0], e))
        return False


def main():
    if os.path.exists(DONE):
        return
    leave()
    while not os.path.exists(RESULT):  # the system is up after cloud-init's last stage
        time.sleep(0.5)
    body = result()
    pause, end = 1, time.monotonic() + 24 * 3600
    while not any(report(url, body) for url in URLS):
        if time.monotonic() > end:
            return
        time.sleep(pause)
        pause = min(2 * pause, 30)
    open(DONE, "w").close()
    syslog.syslog("trivet: phoned home")


main()
