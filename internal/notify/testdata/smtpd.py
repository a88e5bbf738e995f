# A mail server for tests, of aiosmtpd (Debian: python3-aiosmtpd), on the listening socket that is its descriptor 3. It
# prints each mail that it accepts as a line of JSON, and ends with its standard input.
import json
import logging
import socket
import ssl
import sys

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

logging.disable(logging.CRITICAL)  # it logs the traces of clients that end a handshake
mode, cert, key = sys.argv[1:4]
listener = socket.socket(fileno=3)


class Handler:
    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("unknown@"):
            return "550 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        print(json.dumps({
            "from": envelope.mail_from, "to": envelope.rcpt_tos, "tls": session.ssl is not None or mode == "implicit",
            "user": (session.auth_data.login.decode() if session.authenticated else ""),
            "data": envelope.original_content.decode()}), flush=True)
        return "250 OK"


def authenticate(server, session, envelope, mechanism, data):
    right = data.login == b"trivet" and data.password == b"right"
    return AuthResult(success=right, handled=right, auth_data=data)


context = None
if mode != "plain":
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
options = {"authenticator": authenticate}
if mode == "starttls":
    options.update(tls_context=context, require_starttls=True, auth_required=False)
elif mode == "implicit":
    options.update(ssl_context=context, auth_require_tls=False)
else:
    options.update(auth_require_tls=False)  # it would take a password


class Inherited(Controller):
    def _create_server(self):
        return self.loop.create_server(self._factory_invoker, sock=listener, ssl=self.ssl_context)


host, port = listener.getsockname()
controller = Inherited(Handler(), hostname=host, port=port, **options)
controller.start()
print("ready", flush=True)
sys.stdin.read()
controller.stop()
