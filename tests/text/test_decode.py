"""Old encodings of other scripts are recognised where their letters tell, and told."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import Filler, call

from kb.text.decode import decode

RUSSIAN = "# Калибровка\n\nПоверните флюгер на север и подождите сигнала. Запишите показания.\n"
GREEK = "# Ρύθμιση\n\nΓυρίστε τον ανεμοδείκτη προς τον βορρά και περιμένετε το σήμα.\n"
JAPANESE = "# 校正\n\n風向計を北に向けて、音が鳴るまで待ちます。次に値を記録してください。\n"
CHINESE = "# 校準\n\n將風向標轉向北方，等待提示音。然後記錄感測器的數值，並檢查電池。\n"
SIMPLIFIED = "# 校准\n\n将风向标转向北方，等待提示音。然后记录传感器的数值，并检查电池。\n"
KOREAN = "# 교정\n\n풍향계를 북쪽으로 돌리고 신호음을 기다립니다. 센서 값을 기록하십시오.\n"
HEBREW = "# כיול\n\nסובבו את השבשבת צפונה וחכו לצליל. לאחר מכן רשמו את הערכים ביומן.\n"
ARABIC = "# معايرة\n\nأدر دوارة الرياح نحو الشمال وانتظر الإشارة. ثم سجل القيم في الدفتر.\n"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (RUSSIAN, "cp1251"),
        (RUSSIAN, "koi8_r"),
        (GREEK, "cp1253"),
        (JAPANESE, "cp932"),
        (JAPANESE, "euc_jp"),
        (CHINESE, "big5"),
        (SIMPLIFIED, "gb18030"),
        (KOREAN, "cp949"),
        (HEBREW, "cp1255"),
        (ARABIC, "cp1256"),
    ],
)
@pytest.mark.parametrize("times", [1, 2000])
def test_an_old_encoding_is_recognised_and_told(text: str, encoding: str, times: int) -> None:
    read = decode((text * times).replace("\n", "\r\n").encode(encoding))
    assert read.text == text * times
    assert read.encoding == encoding
    assert "not UTF-8: read as" in read.notice


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("# Étalonnage\n\nTournez la girouette à la fin de l'été, où l'œil voit déjà.\n", "cp1252"),
        ("# Prüfung\n\nDrehen Sie die Fahne über Süd, höchstens fünf Grad größer.\n", "latin-1"),
        ("café naïve\n", "latin-1"),
        ("é\n", "latin-1"),
    ],
)
def test_western_text_stays_western(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding)).text == text


def test_documents_files_and_grep_read_an_old_encoding_alike(
    fill: Filler, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = RUSSIAN.replace("\n", "\r\n").encode("cp1251")
    kb = fill({"ru.md": data})
    monkeypatch.chdir(folder.parent)
    document = call(kb, "documents_get_document", collection="docs", document="ru.md")
    file = call(kb, "read_file", path="docs/ru.md")
    found = call(kb, "grep_codebase", pattern="^# ")
    assert document["content"].strip() == RUSSIAN.strip()
    assert file["file"]["content"] == RUSSIAN
    assert [(row["file"], row["line"], row["text"]) for row in found["matches"]] == [
        ("docs/ru.md", 1, "# Калибровка")
    ]
