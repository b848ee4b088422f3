"""Detects texts in a language that a checkpoint is not for, by the script of their letters and their function words.

It uses no library: `docs/decisions/0006-language.md` compares this rule with two that use n-grams of characters.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

MOST_CHARACTERS = 500
"""The number of a text's characters that are examined."""
MOST_LETTERS = 50
"""The most non-ASCII letters whose scripts are looked up, at .2 us each."""
CODE = re.compile(r"^[a-z]{2}$")
"""The form of an ISO 639-1 code."""
WORD = re.compile(r"\b(?:qu|[cdjlmnst])'(?=\w)|\w+")
"""A word, or an elided word before it as in French and Italian (`l'`, `qu'`)."""

SCRIPTS = {
    "ARABIC": "in Arabic script",
    "ARMENIAN": "Armenian",
    "BENGALI": "in Bengali script",
    "CJK": "Chinese",
    "CYRILLIC": "in Cyrillic script",
    "DEVANAGARI": "in Devanagari script",
    "GEORGIAN": "Georgian",
    "GREEK": "Greek",
    "HANGUL": "Korean",
    "HEBREW": "Hebrew",
    "HIRAGANA": "Japanese",
    "KATAKANA": "Japanese",
    "TAMIL": "Tamil",
    "TELUGU": "Telugu",
    "THAI": "Thai",
}
"""The description of a text in a script, by the first word of the Unicode names of its letters."""


@dataclass(frozen=True, slots=True)
class Language:
    """A language that texts are compared with if a checkpoint states it."""

    name: str
    words: frozenset[str] = frozenset()
    """Function words in Latin script. Most sentences of four words contain two of them."""
    letters: str = ""
    """The language's frequent non-ASCII letters."""
    scripts: tuple[str, ...] = ()
    """The language's scripts other than Latin."""


def words_of(text: str) -> frozenset[str]:
    """The words of a text, split at blanks."""
    return frozenset(text.split())


LANGUAGES = {
    "ar": Language("Arabic", scripts=("ARABIC",)),
    "bg": Language("Bulgarian", scripts=("CYRILLIC",)),
    "de": Language(
        "German",
        words_of(
            """aber alle alles als am an auch auf aus bei beim bis bitte da dann darf das dass dein dem den der deren
            des dich die dies diese diesem diesen dieser dieses dir doch dort du durch ein eine einem einen einer
            eines er es euch für gegen gibt haben hat hatte hatten hier ich ihm ihn ihnen ihr ihre ihren im in ist
            kann kannst kein keine man mehr mein meine meinem meinen meiner mich mir mit muss müssen nach nicht noch
            nur ob oder ohne schon sehr seine seinen seit sich sie sind soll sollte sollten sowie um und uns unser
            unter viel viele vom von vor wann war waren warum was weil welche welchem welchen welcher welches wem
            wen wenn wer werden wie wieso wieviel wir wird wo woher wohin wurde wurden während zu zum zur zwischen
            über"""
        ),
        "äöüß",
    ),
    "el": Language("Greek", scripts=("GREEK",)),
    # The last line of English lists content words that are also function words of another language.
    "en": Language(
        "English",
        words_of(
            """a about after also am an and any are as at be because been before between but by can come could did does
            done each every few for from had has have he her here him his how i if in into is it its just many may
            me might more most much must my name no not of on only or other our out over same shall she should since
            so some such than that the their them then there these they this those through to too under until up us
            very was we were what when where which while who whom whose why will with within without would yes you
            your
            ago camp com die do dove due era hat hen man mine ones pour red sale sin son sure tan ten use war"""
        ),
    ),
    "es": Language(
        "Spanish",
        words_of(
            """al algo antes como con cual cuando cuantas cuanto cuantos cuál cuáles cuándo cuánta cuántas cuánto
            cuántos cómo de debe del desde después donde durante dónde e el ella ellos en entre era eran es esa ese
            eso esta estaba estas este esto estos está están fue fueron ha haber había han hasta hay la las le les
            lo los me mi mis muy más ni no nos o para pero por porque pueda puede pueden puedo que quien quién
            quiénes qué se sea ser si sin sobre son su sus también te tiene tienen todas todos tu tus un una unas
            uno unos usted y ya"""
        ),
        "áéíóúñ¿¡",
    ),
    "fa": Language("Persian", scripts=("ARABIC",)),
    "fr": Language(
        "French",
        words_of(
            """alors au aussi autre autres aux avant avec avez avoir c' ce ces cet cette chez comme comment d' dans de
            depuis des doit du elle elles en entre est et eu faire fait il ils j' je l' la laquelle le lequel les
            leur leurs lui mais me mes moi mon n' ne nos notre nous on ont ou où par pas pendant peut peuvent peux
            plus pour pourquoi puis qu' quand que quel quelle quelles quels qui quoi s' sa sans se ses si son sont
            sous sur t' ta tous tout toutes très tu un une vers vos votre vous y à étaient était été être"""
        ),
        "àâçèéêëîïôùûœ",
    ),
    "he": Language("Hebrew", scripts=("HEBREW",)),
    "hi": Language("Hindi", scripts=("DEVANAGARI",)),
    "it": Language(
        "Italian",
        words_of(
            """agli ai al alla alle allo anche c' che chi ci come con cosa d' da dai dal dalla dalle degli dei del dell
            della delle dello devi di dopo dove e ed era erano essere fra fu gli ha hai hanno i il in io l' la le
            lei lo loro lui ma mi mia mio molto ne nei nel nell nella nelle nello noi non o per perché più possiamo
            posso possono prima puoi può qual quale quali quando quanta quante quanti quanto quella quello questa
            queste questi questo sarà se sei si sia sono stata stato su sua sue sugli sui sul sull sulla suo ti tra
            tu tua tuo tutti un una uno vi viene voi è"""
        ),
        "àèéìòù",
    ),
    "ja": Language("Japanese", scripts=("HIRAGANA", "KATAKANA", "CJK")),
    "ko": Language("Korean", scripts=("HANGUL", "CJK")),
    "nl": Language(
        "Dutch",
        words_of(
            """aan al alle als bij dan dat de deze die dit door een en er geen had hadden heb hebben heeft het hij hoe
            hoeveel hun ik in is je jij kan kon kun kunnen maar mag me mee meer met mij mijn moet moeten na naar
            naast nadat niet nog nu of om omdat onder ons ook op over sinds te tegen ten ter toen tot tussen u uit
            uw van veel volgens voor waar waarom wanneer waren was wat we welk welke werd werden wie wij worden
            wordt zal ze zich zij zijn zonder zou zullen één"""
        ),
        "éëï",
    ),
    "pl": Language(
        "Polish",
        words_of(
            """a aby ale bardzo bez być był była było były co czego czy dla dlaczego do gdy gdzie go i ich ile im ja
            jak jaka jaki jakie jako jego jej jest jestem już kiedy kogo kto która które którego której który
            których którym lub ma mają mam mi mnie mogę moja moje moją może można musi mój na nad nich nie nim niż
            od ona oni oraz po pod podczas poza proszę przed przez przy się skąd swoje swoją swój są ta tak także te
            tego tej ten to ty tych tylko tym w we wszystkie z za ze żaden że żeby"""
        ),
        "ąćęłńóśźż",
    ),
    "pt": Language(
        "Portuguese",
        words_of(
            """a ao aos as até com como da das de dela dele depois do dos durante e ela elas ele eles em entre era eram
            essa esse esta este está estão eu foi foram há isso isto já lhe mais mas me meu meus minha minhas muito
            na nas nem no nos não nós o onde os ou para pela pelas pelo pelos pode podem por porque posso quais qual
            quando quantas quanto quantos que quem quê se seja sem ser seu seus sob sobre sua suas são só também te
            tem ter tinha todos têm um uma umas uns você vocês à às é"""
        ),
        "áâãçéêíóõú",
    ),
    "ru": Language("Russian", scripts=("CYRILLIC",)),
    "sv": Language(
        "Swedish",
        words_of(
            """alla att av bara blev bli blir de dem den denna deras dess dessa det detta dig din du där efter eller en
            enligt er ett finns från för före genom ha hade han har hennes heter hette hon honom hur här i inte jag
            kan kunde med mellan men mig min mina mitt mot mycket många måste ni nu när och också om oss på samt
            sedan sig sin sina sitt ska skulle som så till under upp ut utan vad var vara varför varit vart vem vi
            vid vilka vilken vilket vår är över"""
        ),
        "äåö",
    ),
    "th": Language("Thai", scripts=("THAI",)),
    "tr": Language(
        "Turkish",
        words_of(
            """acaba ama ancak aynı bana bazı ben beni benim bir biri biz bu buna bunu bunun böyle da daha de değil
            diye en fakat gibi göre hangi hangisi hangisidir hem her herhangi hiç iki ile ilgili ise için kadar kaç
            kim kimdir kimin lütfen mi mu mü mümkün mı nasıl ne neden nedir nelerdir nerede nereden neresi neresidir
            nereye niçin o olan olarak oldu olduğu olmalıdır olmayan olup olur onlar onun sadece sen senin siz sonra
            tarafından tüm var ve veya ya yok zaman çok önce üzerinde şu"""  # noqa: RUF001
        ),
        "âçöüğış",
    ),
    "uk": Language("Ukrainian", scripts=("CYRILLIC",)),
    "zh": Language("Chinese", scripts=("CJK",)),
}
"""The languages by ISO 639-1 code. If a checkpoint states another code, its texts are not checked."""


def names_of(languages: Sequence[str]) -> str:
    """The languages in words, such as "English, French and German"; a code without a known name stays a code."""
    names = [LANGUAGES[code].name if code in LANGUAGES else code for code in languages]
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def other_language(text: str, languages: Sequence[str]) -> str | None:
    """The language or script that `text` seems to be in, such as "German", if it is not one of `languages`.

    None if it seems to be in one of `languages`, or if this cannot be judged: `languages` is empty or has a code that
    is not in `LANGUAGES`, or the text has fewer than two function words. A text in a language without a row in
    `LANGUAGES` is recognised by its script, or taken for a related language.
    """
    if not languages or not LANGUAGES.keys() >= set(languages):
        return None
    text = unicodedata.normalize("NFC", text[:MOST_CHARACTERS]).lower().replace("\u2019", "'")
    stated = [LANGUAGES[code] for code in languages]
    script = _script(text)
    if script and not any(script in language.scripts for language in stated):
        return SCRIPTS[script]
    words = frozenset(WORD.findall(text))
    stated_words = max(len(words & language.words) for language in stated)
    best, most = None, 1
    for code, language in LANGUAGES.items():
        evidence = 0 if code in languages else len(words & language.words)
        if evidence <= stated_words:
            continue
        evidence += not text.isascii() and not frozenset(language.letters).isdisjoint(text)
        if evidence > most:
            best, most = language.name, evidence
    return best


def _script(text: str) -> str | None:
    """The most frequent script other than Latin; None unless more than half of the letters are not Latin."""
    if text.isascii():
        return None
    letters = [letter for letter in text if letter.isalpha()][:MOST_LETTERS]
    counts = Counter(unicodedata.name(letter, "").partition(" ")[0] for letter in letters if letter > "\u036f")
    counts = Counter({script: count for script, count in counts.items() if script in SCRIPTS})
    if 2 * counts.total() <= len(letters):
        return None
    # Many Japanese sentences have more Chinese characters than kana.
    return next((script for script in ("HIRAGANA", "KATAKANA") if script in counts), counts.most_common(1)[0][0])
