"""The one list of what is secret: files that no tool shows and that are never stored.

A file is secret by a part of its path or because it begins as a private key. Tokens inside a
document do not make it secret: documentation is full of examples.
"""

from __future__ import annotations

import fnmatch
import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache

__all__ = [
    "SECRET_FOLDERS",
    "begins_as_private_key",
    "folded",
    "is_secret",
    "plain_name",
    "secret_folder",
]

# Folders that hold nothing but credentials.
SECRET_FOLDERS = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".password-store", ".secrets", ".vault"),
    *(".config/gcloud", ".config/gh", ".config/op", ".local/share/keyrings", "Library/Keychains"),
    *(".config/rclone", ".config/sops", ".config/doctl", ".config/stripe", ".cloudflared", ".oci"),
)
# Not `.env*`, which would take `.environment.md` too. `[!p]` spares the public `id_rsa.pub`.
_FILES = (
    *(".env", ".env.*", ".env-*", ".env_*", ".env~", ".envrc*", "*.env"),
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk"),
    *("*_rsa", "*_dsa", "*_ecdsa", "*_ed25519", "otr.private_key", "secring.*"),
    *("id_rsa.[!p]*", "id_dsa.[!p]*", "id_ecdsa.[!p]*", "id_ed25519.[!p]*", "id_*_sk.[!p]*"),
    *("*.pem", "*.key", "*.p8", "*.p12", "*.pfx", "*.ppk", "*.jks", "*.keystore", "*.keytab"),
    *("*.pem.*", "*.key.txt", "*.key.bak", "*.key.old", "*.key.orig", "*.key.enc"),
    *("*.kdb", "*.kdbx", "*.agekey", "*.ovpn", "wallet.dat", "*.pkcs12", "*.psafe3", "*.1pux"),
    *("*.keychain", "*.keychain-db", "*.agilekeychain", "*.kwallet", "*.bek", "bitwarden*export*"),
    *(".git-credentials", ".gitcookies", ".npmrc", ".pypirc", ".netrc", "_netrc", ".dockercfg"),
    *(".docker/config.json", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials"),
    *(".pgpass", "pgpass.conf", ".my.cnf", ".mylogin.cnf", ".htpasswd", ".s3cfg", ".boto"),
    *(".vault-token", ".vault_pass*", ".terraformrc", "terraform.rc", "*.tfstate", "*.tfstate.*"),
    *("*.tfvars", "*.tfvars.json", "credentials.tfrc.json", ".pulumi/credentials.json"),
    *(".dev.vars", ".dev.vars.*", ".flaskenv", "local.settings.json", "*.publishsettings"),
    *("*.azurepubxml", "*.cscfg", ".databrickscfg", ".tugboat", "rclone.conf", "ngrok.yml"),
    *(".m2/settings.xml", "settings-security.xml", ".gradle/gradle.properties", "key.properties"),
    *("keystore.properties", ".composer/auth.json", ".codex/auth.json", "containers/auth.json"),
    *(".config/hub", ".config/git/credentials", "kaggle.json", "huggingface/token"),
    *(".huggingface/token", ".supabase/access-token", ".claude.json"),
    *(".vscode/sftp.json", "sftp-config.json", ".ftpconfig", ".remote-sync.json"),
    *("filezilla.xml", "recentservers.xml", "sitemanager.xml", "proftpdpasswd", ".smbcredentials"),
    *(".muttrc", ".msmtprc", ".fetchmailrc", "logins.json", "key4.db", "secret_token.rb"),
    *(".credentials", ".credentials.*", ".secret", ".secrets.*", ".*_history", "fish_history"),
    *(".Xauthority", ".dbshell", "kubeconfig", "talosconfig", "credentials.xml"),
    *("secrets.json", "secrets.y*ml", "secrets.toml", "secrets.ini", "credentials.json"),
    *("*-firebase-adminsdk-*.json", "application_default_credentials.json", "gha-creds-*.json"),
    *("credentials.csv", "*accesskeys.csv", "rootkey.csv"),
    *("client_secret*.json", "service-account*.json", "service_account*.json", "*.kubeconfig"),
)

# What is secret, as globs that fit a name or the last names of a path, in any case of letters.
_GLOBS = (*SECRET_FOLDERS, *_FILES)


def _any_of(globs: tuple[str, ...], *, with_slash: bool) -> re.Pattern[str]:
    chosen = [glob.casefold() for glob in globs if ("/" in glob) == with_slash]
    return re.compile("|".join(fnmatch.translate(glob) for glob in chosen))


_NAME, _NAMES = _any_of(_GLOBS, with_slash=False), _any_of(_GLOBS, with_slash=True)
_FOLDER, _FOLDER_NAMES = (
    _any_of(SECRET_FOLDERS, with_slash=False),
    _any_of(SECRET_FOLDERS, with_slash=True),
)
_FIRST_NAMES = {glob.casefold().split("/")[0] for glob in _GLOBS if "/" in glob}
_LONGEST = max(glob.count("/") for glob in _GLOBS) + 1  # names in a glob

# Characters that look like a dot or a slash and that NFKC leaves as they are.
_LOOK_ALIKES = str.maketrans(
    {
        **dict.fromkeys("\u2044\u2215\u29f8\u2571\u27cb\u1735", "/"),
        **dict.fromkeys("\u2216\u29f5\u29f9\u2572\u27cd", "\\"),
        **dict.fromkeys("\u3002\ua4f8\U00010a50", "."),
    }
)

# An armoured key, alone, behind its certificate or behind what openssl writes above it; PuTTY's
# and age's keys.
_PRIVATE_KEY = re.compile(
    r"[\s\ufeff]*(?:"
    r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY"
    r"|(?:-----BEGIN CERTIFICATE-----|Bag Attributes)[^\0]*?^-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY"
    r"|PuTTY-User-Key-File-\d|(?:#[^\n]*\n)*AGE-SECRET-KEY-1)",
    re.MULTILINE,
)


def is_secret(path: str) -> bool:
    """Whether any part of a path, written with "/", has a secret name."""
    return _any_part(path, _is_secret_name, _NAMES)


def secret_folder(path: str) -> bool:
    """Whether any part of a path has the name of a folder that holds nothing but credentials."""
    return _any_part(path, _is_secret_folder, _FOLDER_NAMES)


def begins_as_private_key(text: str) -> bool:
    """Whether a text is a private key, not a document that shows one."""
    return _PRIVATE_KEY.match(text) is not None


def plain_name(name: str) -> str:
    """A name as the file systems see it that fold case and width.

    They also drop invisible letters and trailing dots or blanks, and take what follows a colon
    for the name of a stream.
    """
    return folded(name).casefold().split(":")[0].strip(" ").rstrip(" .")


def folded(text: str) -> str:
    """The text with look-alikes and wide letters as the plain ones, without invisible letters."""
    if text.isascii():
        return text
    # Look-alikes first and last: NFKC makes some and unmakes others.
    plain = unicodedata.normalize("NFKC", text.translate(_LOOK_ALIKES)).translate(_LOOK_ALIKES)
    return "".join(letter for letter in plain if not _is_invisible(letter))


def _any_part(path: str, is_one: Callable[[str], bool], several: re.Pattern[str]) -> bool:
    parts = path.split("/")
    if any(is_one(part) for part in parts):
        return True
    if _FIRST_NAMES.isdisjoint(part.casefold() for part in parts) and path.isascii():
        return False
    plain = [plain_name(part) for part in parts]
    return any(
        several.match("/".join(plain[start : start + length]))
        for length in range(2, min(_LONGEST, len(plain)) + 1)
        for start in range(len(plain) - length + 1)
    )


# Names come again and again in the paths of a folder, which are judged by the thousand.
@lru_cache(maxsize=10_000)
def _is_secret_name(name: str) -> bool:
    return _NAME.match(plain_name(name)) is not None


def _is_secret_folder(name: str) -> bool:
    return _FOLDER.match(plain_name(name)) is not None


def _is_invisible(letter: str) -> bool:
    return unicodedata.category(letter) == "Cf" or "\ufe00" <= letter <= "\ufe0f"
