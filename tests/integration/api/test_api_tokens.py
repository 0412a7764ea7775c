"""Tokens of an issuer: signed with its keys, for this server, now. The issuer is a real HTTP server, its keys are made here."""

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from starlette.testclient import TestClient

from controlplane.api.app import create_app
from controlplane.api.authenticate import Authenticator
from controlplane.api.tokens import KeySet, TrustedTokens, tokens_of
from controlplane.config import Settings
from controlplane.domain.identity import owner
from controlplane.errors import InvalidRequest, Unavailable
from controlplane.handlers import tenants
from controlplane.ports_access import TenantRow
from tests.integration.api.scene import a_job

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
CURVE = ec.generate_private_key(ec.SECP256R1())


def jwk(key, kid, **fields):
    algorithm = (
        jwt.algorithms.RSAAlgorithm
        if hasattr(key, "private_numbers") and isinstance(key, rsa.RSAPrivateKey)
        else jwt.algorithms.ECAlgorithm
    )
    return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid, "use": "sig", **fields}


class Issuer:
    """A server of keys that may be changed."""

    def __init__(self):
        self.keys = [jwk(RSA, "rsa-1"), jwk(CURVE, "ec-1")]
        self.asked = 0
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                issuer.asked += 1
                body = json.dumps({"keys": issuer.keys}).encode()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/keys"


@pytest.fixture
def issuer():
    made = Issuer()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def clock():
    return [1_000.0]


@pytest.fixture
def tokens(issuer, clock):
    keys = KeySet(issuer.url, clock=lambda: clock[0])
    return TrustedTokens(issuer="https://login.example", audience="custody", keys=keys, leeway_seconds=5)


def claims(**fields):
    now = int(time.time())
    given = {
        "iss": "https://login.example",
        "aud": "custody",
        "sub": "ada",
        "tenant": "a",
        "roles": ["submitter"],
        "iat": now,
        "exp": now + 60,
    }
    return {name: value for name, value in {**given, **fields}.items() if value is not None}


def token(key=RSA, algorithm="RS256", kid="rsa-1", **fields):
    return jwt.encode(claims(**fields), key, algorithm=algorithm, headers={"kid": kid})


def test_a_token_says_who_of_which_tenant_in_which_roles(tokens):
    for made in (token(), token(CURVE, "ES256", "ec-1"), token(roles="submitter viewer king")):
        caller = tokens.caller(made)
        assert (caller.name, caller.scope.tenant_id) == ("ada", "a")
        assert "submitter" in caller.roles
    assert tokens.caller(token(roles="submitter viewer king")).roles == {"submitter", "viewer"}


def unsigned(**fields):
    parts = [{"alg": "none", "typ": "JWT", "kid": "rsa-1"}, claims(**fields)]
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*texts, ""])


def with_the_public_key():
    """The old trick: the public key as the secret of a signature that needs a secret."""
    public = RSA.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    import hashlib
    import hmac

    parts = [{"alg": "HS256", "typ": "JWT", "kid": "rsa-1"}, claims()]
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    mac = hmac.new(public, ".".join(texts).encode(), hashlib.sha256).digest()
    return ".".join([*texts, base64.urlsafe_b64encode(mac).decode().rstrip("=")])


NOW = int(time.time())


@pytest.mark.parametrize(
    "made",
    [
        unsigned(),
        with_the_public_key(),
        token(OTHER),
        token(kid="rsa-2"),
        token(CURVE, "ES256", "rsa-1"),
        token(aud="another"),
        token(aud=None),
        token(iss="https://other.example"),
        token(iss=None),
        token(exp=NOW - 60),
        token(exp=None),
        token(nbf=NOW + 3600),
        token(iat=NOW + 3600),
        token(tenant=None),
        token(tenant=""),
        token(tenant=["a"]),
        token(tenant="a\x00"),
        token(sub=None),
        token(sub="x" * 300),
        jwt.encode(claims(), RSA, algorithm="RS256"),
        jwt.encode(claims(), RSA, algorithm="RS512", headers={"kid": "rsa-1"}),
        jwt.encode(claims(), "secret" * 10, algorithm="HS256", headers={"kid": "rsa-1"}),
        token() + "x",
        token()[:-10],
        "a.b.c",
        "",
        "x" * 20_000,
    ],
)
def test_any_other_token_is_nobodys(tokens, made):
    assert tokens.caller(made) is None


def test_keys_are_read_once_for_a_while_and_again_when_one_is_new(tokens, issuer, clock):
    for _ in range(5):
        assert tokens.caller(token()) is not None
    assert issuer.asked == 1

    issuer.keys = [jwk(OTHER, "rsa-2")]
    clock[0] += 11
    assert tokens.caller(token(OTHER, kid="rsa-2")) is not None
    assert tokens.caller(token()) is None
    # Who asks with keys that nobody has does not make us ask the issuer each time.
    for _ in range(20):
        tokens.caller(token(kid="rsa-9"))
    assert issuer.asked == 2


def test_a_key_that_was_withdrawn_is_not_good_for_long(tokens, issuer, clock):
    assert tokens.caller(token()) is not None
    issuer.keys = []
    clock[0] += 301

    assert tokens.caller(token()) is None


def test_an_issuer_that_cannot_be_asked_is_waited_for_a_while_and_then_nothing_is_believed(
    tokens, issuer, clock
):
    assert tokens.caller(token()) is not None
    issuer.server.shutdown()
    issuer.server.server_close()
    clock[0] += 400
    assert tokens.caller(token()) is not None

    clock[0] += 3_600
    with pytest.raises(Unavailable, match="token issuer"):
        tokens.caller(token())


def test_keys_are_read_from_a_file_too_and_roles_are_mapped(tmp_path):
    place = tmp_path / "keys.json"
    place.write_text(json.dumps({"keys": [jwk(RSA, "rsa-1"), {"kty": "oct", "kid": "x", "k": "AA"}, "?"]}))
    made = tokens_of(
        Settings(
            home=tmp_path,
            oidc_issuer="https://login.example",
            oidc_audience="custody",
            oidc_jwks=str(place),
            oidc_roles="ops=operator,bosses=admin",
            oidc_roles_claim="groups",
            oidc_tenant_claim="org",
        )
    )

    caller = made.caller(token(groups=["ops", "admin"], org="b"))

    assert (caller.scope.tenant_id, caller.roles) == ("b", {"operator"})


def test_settings_that_would_believe_anybody_are_refused(tmp_path):
    place = {"oidc_issuer": "https://login.example", "oidc_audience": "custody"}
    for wrong in (
        {"oidc_issuer": "x"},
        {**place, "oidc_jwks": "http://login.example/keys"},
        {**place, "oidc_jwks": "ftp://login.example/keys"},
        {**place, "oidc_jwks": "https://login.example/keys", "oidc_roles": "x=king"},
    ):
        with pytest.raises(InvalidRequest):
            tokens_of(Settings(home=tmp_path, **wrong))


def test_a_token_is_served_for_a_tenant_that_was_entered_and_no_other(app, tokens):
    api = create_app(app, auth=Authenticator(desk=app.desk, tokens=tokens))
    headers = {"Authorization": f"Bearer {token()}"}
    with TestClient(api) as client:
        refused = client.post("/v1/jobs", json=a_job(), headers=headers)
        tenants.create(app.desk, TenantRow(tenant_id="a"), caller=owner("ada"))
        made = client.post("/v1/jobs", json=a_job(), headers=headers)
        nobody = client.get("/v1/jobs", headers={"Authorization": f"Bearer {unsigned()}"})

    assert refused.status_code == 403
    assert (made.status_code, made.json()["tenant_id"]) == (201, "a")
    assert (nobody.status_code, nobody.headers["WWW-Authenticate"]) == (401, 'Bearer realm="custody"')
