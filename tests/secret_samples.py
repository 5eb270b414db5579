"""Forty secrets in sentences as people write them down, made anew by every run.

They are built from random parts, so that no scanner of this repository takes one for real.
"""

from __future__ import annotations

import base64
import json
import random
import string

_RANDOM = random.Random(20)


def _of(alphabet: str, length: int) -> str:
    return "".join(_RANDOM.choices(alphabet, k=length))


def hex_(length: int) -> str:
    return _of("0123456789abcdef", length)


def upper(length: int) -> str:
    return _of(string.ascii_uppercase + "234567", length)


def mixed(length: int) -> str:
    return _of(string.ascii_letters + string.digits, length)


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _json_web_token() -> str:
    header = _base64(json.dumps({"alg": "HS256", "typ": "JWT"}).encode())
    body = _base64(json.dumps({"sub": hex_(10), "iat": 1700000000, "name": mixed(8)}).encode())
    return f"{header}.{body}.{mixed(43)}"


def _private_key(kind: str) -> str:
    lines = "\n".join(mixed(64) for _ in range(4))
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{lines}\n-----END {kind}PRIVATE KEY-----"


def _digits(length: int) -> str:
    return _of(string.digits, length)


# (kind for the reader, text)
SECRETS: tuple[tuple[str, str], ...] = (
    ("AWS access key", f"The deploy user has the access key AKIA{upper(16)}"),
    ("AWS secret key", f"aws_secret_access_key = {mixed(40)}"),
    ("GitHub token", f"CI clones with ghp_{mixed(36)}"),
    ("GitHub app token", f"Use ghs_{mixed(36)} for the release job"),
    ("GitHub fine-grained token", f"github_pat_{mixed(22)}_{mixed(59)} has write access"),
    ("GitLab token", f"The mirror pushes with glpat-{mixed(20)}"),
    ("Slack bot token", f"The bot posts with xoxb-{_digits(12)}-{_digits(12)}-{mixed(24)}"),
    (
        "Slack webhook",
        f"Alerts go to https://hooks.slack.com/services/T{upper(10)}/B{upper(10)}/{mixed(24)}",
    ),
    ("Stripe key", f"Payments use sk_live_{mixed(24)} in production"),
    ("Stripe restricted key", f"The report reads with rk_live_{mixed(24)}"),
    ("Google API key", f"Maps are loaded with AIza{mixed(35)}"),
    ("OpenAI key", f"The summaries are made with sk-proj-{mixed(74)}T3BlbkFJ{mixed(74)}"),
    ("older OpenAI key", f"OPENAI_API_KEY=sk-{mixed(20)}T3BlbkFJ{mixed(20)}"),
    ("Anthropic key", f"export ANTHROPIC_API_KEY=sk-ant-api03-{mixed(93)}AA"),
    ("npm token", f"Publishing works with npm_{mixed(36)}"),
    ("PyPI token", f"twine uses pypi-AgEIcHlwaS5vcmc{mixed(120)}"),
    ("SendGrid key", f"Mail is sent with SG.{mixed(22)}.{mixed(43)}"),
    ("Twilio key", f"The Twilio API key is SK{hex_(32)}"),
    ("Mailgun key", f"mailgun key-{hex_(32)}"),
    ("DigitalOcean token", f"doctl logs in with dop_v1_{hex_(64)}"),
    ("Hugging Face token", f"Models are pulled with hf_{_of(string.ascii_letters, 34)}"),
    ("Shopify token", f"The shop answers to shpat_{hex_(32)}"),
    ("JSON web token", f"A token that never expires: {_json_web_token()}"),
    ("Telegram bot token", f"The bot is {_digits(10)}:AA{mixed(33)}"),
    ("RSA private key", "The jump host takes\n" + _private_key("RSA ")),
    ("EC private key", "Signing:\n" + _private_key("EC ")),
    ("OpenSSH private key", "Deploy with this one:\n" + _private_key("OPENSSH ")),
    ("private key", _private_key("")),
    ("password in a URL", f"Staging is postgres://app:{mixed(14)}@db.internal:5432/shop"),
    ("password in an https URL", f"Packages come from https://ci:{mixed(16)}@pypi.internal/simple"),
    ("assigned password", f"password={mixed(12)}"),
    ("assigned words", "We use DB_PASSWORD=correct-horse-battery-staple on staging"),
    ("password in YAML", f"password: {mixed(10)}!"),
    ("quoted password", f'The admin login has password = "{mixed(9)}#1"'),
    ("assigned secret", f"client_secret: {mixed(32)}"),
    ("assigned token", f"auth_token = '{hex_(40)}'"),
    ("assigned API key", f"api_key={hex_(32)}"),
    ("Django's key", f"SECRET_KEY = '{mixed(50)}'"),
    ("bearer token", f"curl -H 'Authorization: Bearer {mixed(40)}' works"),
    (
        "basic authentication",
        f"Authorization: Basic {base64.b64encode(b'admin:' + mixed(12).encode()).decode()}",
    ),
)

_CUT = _private_key("OPENSSH ").rpartition("\n")[0]
_PAIR = f"{mixed(20)}aA1{mixed(20)}/{mixed(20)}+{mixed(20)}=="

# What was taken into discoveries by earlier versions.
MORE_SECRETS: tuple[tuple[str, str], ...] = (
    ("key block without its end", f"The jump host takes\n{_CUT}"),
    ("key block cut in its first line", f"-----BEGIN PRIVATE KEY-----\n{mixed(40)}"),
    (
        "encrypted key block",
        f"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n{mixed(64)}",
    ),
    ("key block in a string", f'"-----BEGIN PRIVATE KEY-----\\n{mixed(64)}\\n{mixed(64)}'),
    ("key block without its beginning", f"{mixed(64)}\n{mixed(22)}==\n-----END PRIVATE KEY-----"),
    ("PGP key block", f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{mixed(64)}\n={mixed(4)}"),
    ("PuTTY key", f"Encryption: none\nPrivate-Lines: 1\n{mixed(48)}"),
    ("age key", f"AGE-SECRET-KEY-1{upper(58)}"),
    ("Azure storage", f"DefaultEndpointsProtocol=https;AccountName=shop;AccountKey={_PAIR};"),
    ("Azure account key", f"AccountKey={_PAIR}"),
    ("Azure Cosmos", f"AccountEndpoint=https://shop.documents.azure.com:443/;AccountKey={_PAIR};"),
    ("Azure service bus", f"SharedAccessKeyName=Root;SharedAccessKey={mixed(42)}1aA="),
    ("shared access signature", f"https://shop.blob.core.windows.net/c?sp=r&sig={mixed(41)}%3D"),
    ("key of any name", f"MY_STORAGE_KEY: '{_PAIR}'"),
    ("Slack workflow", f"https://hooks.slack.com/triggers/T{upper(10)}/{_digits(13)}/{hex_(32)}"),
    ("Discord webhook", f"https://discord.com/api/webhooks/{_digits(18)}/{mixed(68)}"),
    ("Teams webhook", f"acme.webhook.office.com/webhookb2/{hex_(73)}/IncomingWebhook/{hex_(32)}/x"),
    ("Airtable token", f"pat{mixed(14)}.{hex_(64)}"),
    ("Google OAuth token", f"ya29.{mixed(120)}"),
    ("Kubernetes client key", f"    client-key-data: {mixed(400)}=="),
    ("Notion token", f"ntn_{mixed(46)}"),
    ("Figma token", f"figd_{mixed(40)}"),
    ("NuGet key", f"oy2{mixed(43)}"),
    ("Tailscale key", f"tskey-auth-{mixed(12)}-{mixed(32)}"),
    ("hashed password", f"root:$6${mixed(16)}${mixed(86)}:19000:0:99999:7:::"),
    ("bcrypt", f"admin:$2y$10${mixed(53)}"),
)

# Passwords that stand in a thousand examples, and on servers.
EXAMPLE_PASSWORDS = (
    "password=hunter2",
    "password = hunter2",
    "the admin password: hunter2",
    'log in with {"password": "hunter2"}',
    "pwd=Summer2024!",
    "pass: qwerty12",
    "PASSWORT=geheim123",
    "DB_PASSWORD := 'winter#23'",
)
