"""The pages in a real browser against the real process."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait
from tests.contextual import save_contextual
from tests.program import program
from tools.browser import DESKTOP, PHONE, Browser, open_browser
from tools.nginx import proxying
from tools.process import Process, serving, start

from cerberank_models.checkpoint.folder import read_checkpoint
from cerberank_models.checkpoint.revise import revise_checkpoint
from cerberank_models.checkpoint.store.folder_store import FolderStore
from cerberank_service.access.key_file import add_key

AXE = Path(__file__).resolve().parents[2] / "node_modules" / "axe-core" / "axe.min.js"
QUESTION = "how tall is the tower ?"
TEXTS = [f"{number} metres word " + "word " * number for number in range(10)]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


@pytest.fixture
def browser(chromium: Browser, service: Process) -> Browser:
    """On the playground of a ready service, as on a desk by day."""
    chromium.look("light", DESKTOP)
    chromium.requested()
    chromium.driver.get("about:blank")  # so that the address of the last test does not fill the form
    chromium.driver.get(f"{service.url}/")
    chromium.wait_for("#summary", "12 candidates in")
    chromium.console()
    return chromium


def fill_in(browser: Browser, texts: list[str]) -> None:
    unfold(browser)
    browser.driver.execute_script("document.getElementById('summary').textContent = ''")
    for selector, text in (("#question", QUESTION), ("#candidates", "\n".join(texts))):
        browser.find(selector).clear()
        browser.find(selector).send_keys(text)


def unfold(browser: Browser) -> None:
    browser.driver.execute_script("for (const each of document.querySelectorAll('details')) each.open = true")


def sent(browser: Browser) -> Any:
    """The body of the request that the page shows as curl, as a shell would give it to curl."""
    return json.loads(shlex.split(browser.texts("#curl")[0])[4])


def native(service: Process, candidates: Sequence[object], **fields: object) -> list[dict[str, Any]]:
    body = {"question": QUESTION, "candidates": candidates, "return_heads": True} | fields
    return httpx.post(f"{service.url}/v1/rank", json=body).raise_for_status().json()["results"]


def shown(results: list[dict[str, Any]]) -> list[str]:
    """The scores as the page writes them."""
    return [f"{100 * result['score']:.1f} %" for result in results]


def test_a_question_is_ranked_by_clicking(browser: Browser, service: Process) -> None:
    """The order, scores and heads are the API's; the time is shown, and the request as curl."""
    fill_in(browser, TEXTS)
    browser.find("#rank").click()
    browser.wait_for("#summary", "10 candidates in")
    expected = native(service, TEXTS, drop_ratio=0.0)
    assert browser.texts("td.text") == [TEXTS[result["index"]].strip() for result in expected]
    assert browser.texts("td.score b") == shown(expected)
    assert len(browser.texts("td.head b")) == sum(len(result["heads"]) for result in expected)
    assert sent(browser) == {"question": QUESTION, "candidates": [text.strip() for text in TEXTS], "return_heads": True}
    assert [text.rsplit(" ", 2)[0] for text in browser.texts(".timing li")] == [
        "read and encode",
        "queue",
        "model",
        "the rest",
    ]
    assert browser.console() == []


def test_the_slider_shows_where_each_candidate_was_dropped(browser: Browser, service: Process) -> None:
    """A group of rows for each stage, with the API's candidates in it."""
    fill_in(browser, TEXTS)
    browser.find("#rank").click()
    browser.wait_for("#summary", ", 0 dropped")
    assert not browser.find("#ratio").is_displayed()
    browser.find("#default").click()
    browser.slide("#ratio", 0.4)
    assert browser.texts("#ratio-value") == ["40 %"]
    expected = native(service, TEXTS, drop_ratio=0.4)
    stages = [result["stage"] for result in expected]
    last = max(stages)
    browser.wait_for("#summary", f", {sum(stage != last for stage in stages)} dropped")
    groups = [len(browser.texts(f"tbody:nth-of-type({place}) td.text")) for place in range(1, len(set(stages)) + 1)]
    assert groups == [stages.count(stage) for stage in sorted(set(stages), reverse=True)]
    titles = browser.texts("tbody th")
    assert "last stage" in titles[0]
    assert all("Dropped at exit" in title for title in titles[1:])


def test_the_default_schedule_is_the_service_s(chromium: Browser, tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Nothing is sent of it, so that its minimum holds, too; a slider takes its place, and the box brings it back."""
    old = read_checkpoint(tiny_checkpoint)
    config = old.config.model_copy(update={"drop_schedule": (0.5, 0.8), "drop_minimum": 4})
    tuned = revise_checkpoint(old, tmp_path / "tuned", version="2", config=config)
    with serving(tuned.path, tmp_path / "log") as service:
        chromium.look("light", DESKTOP)
        chromium.driver.get(f"{service.url}/")
        chromium.wait_for("#default-help", "It drops 50 %, then 80 % of the candidates, and keeps at least 4.")
        fill_in(chromium, TEXTS)
        chromium.find("#rank").click()
        chromium.wait_for("#summary", ", 6 dropped")
        expected = native(service, TEXTS)
        assert sum(result["stage"] < 2 for result in expected) == 6
        assert chromium.texts("td.text") == [TEXTS[result["index"]].strip() for result in expected]
        chromium.find("#default").click()
        chromium.slide("#ratio", 0.0)
        chromium.wait_for("#summary", ", 0 dropped")
        chromium.find("#default").click()
        chromium.wait_for("#summary", ", 6 dropped")


def test_a_line_s_neighbours_are_sent(chromium: Browser, tmp_path: Path) -> None:
    """For a model that reads context (SSP) a box appears; with it, the lines beside a candidate change its score, and
    are shown.
    """
    texts = ["it was built in paris .", "330 metres", "what do bees make"]
    padded = ["", *texts, ""]
    beside = [{"text": text, "previous": padded[i], "next": padded[i + 2]} for i, text in enumerate(texts)]
    checkpoint = tmp_path / "checkpoint"
    source = save_contextual("bert", tmp_path / "teacher")
    assert program("import")([str(source), str(checkpoint), "--name", "contextual", "--forms", "none"]) == 0
    with serving(checkpoint, tmp_path / "log", CERBERANK_BACKEND="torch", CERBERANK_PRECISION="fp32") as service:
        chromium.look("light", DESKTOP)
        chromium.driver.get(f"{service.url}/")
        chromium.wait_for("#model", "contextual")
        fill_in(chromium, texts)
        chromium.find("#rank").click()
        chromium.wait_for("#summary", "3 candidates in")
        alone = chromium.texts("td.score b")
        assert alone == shown(native(service, texts))
        assert chromium.texts(".beside") == []
        chromium.driver.execute_script("document.getElementById('summary').textContent = ''")
        chromium.find("#neighbours").click()
        chromium.wait_for("#summary", "3 candidates in")
        assert alone != chromium.texts("td.score b") == shown(native(service, beside))
        assert sorted(chromium.texts(".beside")) == sorted([*texts[:2], *texts[1:]])
        assert chromium.console() == []


def test_a_model_that_failed_is_told_with_its_reason(chromium: Browser, tiny_checkpoint: Path, tmp_path: Path) -> None:
    """On both pages, with a link to all versions; nothing can be ranked."""
    store = FolderStore(tmp_path / "store")
    store.push(read_checkpoint(tiny_checkpoint))
    store.move_label("random-tiny", "stable", "1")
    (tmp_path / "store" / "random-tiny" / "1" / "tokenizer.json").write_text("{}")
    service = start(Path(), tmp_path / "log", CERBERANK_STORE=str(tmp_path / "store"), TMPDIR=str(tmp_path))
    try:
        for page in ("", "status"):
            chromium.driver.get(f"{service.url}/{page}")
            chromium.wait_for("#problem", "random-tiny 1 cannot serve and is not tried again.")
            (reason,) = [model["reason"] for model in httpx.get(f"{service.url}/v1/models").json()["models"]]
            assert f"{reason}. Push another version, or name another checkpoint." in chromium.texts("#problem")[0]
            assert chromium.find("#problem a").get_attribute("href") == f"{service.url}/v1/models"
        chromium.driver.get(f"{service.url}/")
        chromium.wait_for("#problem", reason)
        assert not chromium.find("#rank").is_enabled()
    finally:
        service.process.kill()
        service.process.wait()


def test_long_texts_are_folded_and_low_scores_are_not_bold(browser: Browser, service: Process) -> None:
    """A button shows the whole text; a text in windows begins with its best one."""
    texts = [f"start {'word ' * 400}end", "330 metres"]
    fill_in(browser, ["x"])
    script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input', {bubbles: true}))"
    browser.driver.execute_script(script, browser.find("#candidates"), "\n".join(texts))
    assert browser.texts("#count") == ["2 candidates, one on each line"]
    browser.find("#rank").click()
    browser.wait_for("#summary", "2 candidates in")
    unfold(browser)
    expected = {result["index"]: result for result in native(service, texts)}
    window = expected[0]["window"]
    assert browser.texts("mark") == [texts[0][window["start"] : window["end"]]]
    assert "Show the whole text" in browser.texts("button.more")[0]
    browser.find("button.more").click()
    assert texts[0] in "".join(browser.texts("td.text"))
    best = max(result["score"] for result in expected.values())
    assert len(browser.texts("tr.best")) == (best >= 0.5)
    browser.find("#windows").click()
    browser.wait_for(".cut", "not read to its end")


def test_the_box_of_windows_begins_with_the_model_s_rule(
    chromium: Browser, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    """Off for a model that cuts texts, whose windows are read when it is ticked."""
    old = read_checkpoint(tiny_checkpoint)
    cutting = old.config.model_copy(update={"encoding": old.config.encoding.model_copy(update={"windows": "off"})})
    folder = shutil.copytree(tiny_checkpoint, tmp_path / "cutting")
    (folder / "config.json").write_text(cutting.model_dump_json())
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["config.json"] = sha256((folder / "config.json").read_bytes()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with serving(folder, tmp_path / "log") as service:
        chromium.look("light", DESKTOP)
        chromium.driver.get(f"{service.url}/")
        chromium.wait_for("#model", "random-tiny 1")
        assert not chromium.find("#windows").is_selected()
        fill_in(chromium, ["word " * 90, "330 metres"])
        chromium.find("#rank").click()
        chromium.wait_for(".cut", "not read to its end")
        chromium.find("#windows").click()
        chromium.wait_for("mark", "word")


@pytest.mark.parametrize(
    ("text", "candidates"),
    [
        ("one\n two \n\n", ["one", "two"]),
        ("one\nline\n\n\nit's two", ["one line", "it's two"]),
        ('["one", {"text": "two", "id": 7}]', ["one", {"text": "two", "id": 7}]),
        ('{"query": "asked", "documents": ["one"]}', ["one"]),
        ("[sic] one\n{two", ["[sic] one", "{two"]),
    ],
)
def test_candidates_are_lines_passages_or_json(browser: Browser, text: str, candidates: list[object]) -> None:
    """A body's question fills its field, and the page says how many candidates it has read."""
    script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input', {bubbles: true}))"
    browser.driver.execute_script(script, browser.find("#candidates"), text)
    browser.driver.execute_script("document.getElementById('summary').textContent = ''")
    assert browser.texts("#count")[0].startswith(f"{len(candidates)} candidate")
    browser.find("#rank").click()
    browser.wait_for("#summary", f"{len(candidates)} candidate")
    assert sent(browser)["candidates"] == candidates
    assert (sent(browser)["question"] == "asked") == ("query" in text)


def test_a_key_is_asked_for_where_one_is_needed(chromium: Browser, tiny_checkpoint: Path, tmp_path: Path) -> None:
    """By a field that is hidden otherwise."""
    key = add_key(tmp_path / "keys.json", "page")
    with serving(tiny_checkpoint, tmp_path / "log", CERBERANK_KEYS_FILE=str(tmp_path / "keys.json")) as service:
        chromium.look("light", DESKTOP)
        chromium.driver.get("about:blank")
        chromium.driver.get(f"{service.url}/")
        chromium.wait_for("#problem", "API key")
        chromium.find("#key").send_keys(key)
        chromium.find("#rank").click()
        chromium.wait_for("#summary", "12 candidates in")
        assert "Bearer KEY" in chromium.texts("#curl")[0]
        assert key not in chromium.driver.current_url


def test_a_link_and_a_reload_show_the_same(browser: Browser) -> None:
    """The form is in the part of the address that is not sent."""
    fill_in(browser, TEXTS)
    browser.find("#rank").click()
    browser.wait_for("#summary", "10 candidates in")
    link, texts = browser.driver.current_url, browser.texts("td.text")
    browser.driver.get("about:blank")
    browser.driver.get(link)
    browser.wait_for("#summary", "10 candidates in")
    assert browser.texts("td.text") == texts
    assert browser.find("#question").get_attribute("value") == QUESTION


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desk", "phone"])
def test_the_first_screen_shows_a_ranking(browser: Browser, service: Process, size: tuple[int, int]) -> None:
    """The first example is ranked when the page opens."""
    browser.look("light", size)
    browser.driver.get("about:blank")
    browser.driver.get(f"{service.url}/")
    browser.wait_for("#summary", "12 candidates in")
    bottom = browser.driver.execute_script("return document.querySelector('td.text').getBoundingClientRect().bottom")
    assert bottom < size[1]
    assert browser.driver.execute_script("return scrollY") == 0


def test_a_phone_shows_the_answer(browser: Browser) -> None:
    """The page goes to the ranking, below the form; keys that it lacks are not named."""
    browser.look("light", PHONE)
    fill_in(browser, TEXTS)
    browser.driver.execute_script("scrollTo(0, 0)")
    assert not browser.find(".keys").is_displayed()
    browser.driver.execute_script("document.getElementById('rank').click()")
    browser.wait_for("#summary", "10 candidates in")
    top = "return document.getElementById('answer').getBoundingClientRect().top"
    WebDriverWait(browser.driver, 10).until(lambda driver: abs(driver.execute_script(top)) < PHONE[1] / 3)


def test_every_example_ranks(browser: Browser) -> None:
    """Choosing one is enough."""
    menu = Select(browser.find("#example"))
    assert len(menu.options) > 4
    for option in reversed(range(1, len(menu.options))):  # the first one is chosen
        browser.driver.execute_script("document.getElementById('summary').textContent = ''")
        menu.select_by_index(option)
        count = len(browser.find("#candidates").get_attribute("value").splitlines())
        browser.wait_for("#summary", f"{count} candidates in")
    assert browser.console() == []


def test_the_keyboard_is_enough(browser: Browser) -> None:
    """From the top: skip link, pages, form; Control and Enter rank."""
    keys = ActionChains(browser.driver)

    def select_all() -> None:
        keys.key_down(Keys.CONTROL).send_keys("a").key_up(Keys.CONTROL)

    keys.send_keys(Keys.TAB * 6)
    select_all()
    keys.send_keys(QUESTION).send_keys(Keys.TAB * 2)
    select_all()
    keys.send_keys("330 metres").send_keys(Keys.ENTER).send_keys("in paris").key_down(Keys.CONTROL).send_keys(
        Keys.ENTER
    ).key_up(Keys.CONTROL)
    keys.perform()
    browser.wait_for("#summary", "2 candidates in")


def test_texts_are_never_read_as_html(browser: Browser) -> None:
    """A candidate with a script in it is shown as it is."""
    fill_in(browser, ['<img src="x" onerror="document.title = 1"> 330 metres', "<b>iron</b>"])
    browser.find("#rank").click()
    browser.wait_for("#summary", "2 candidates in")
    assert "<b>iron</b>" in browser.texts("td.text")
    assert browser.driver.title == "Cerberank playground"


def test_a_problem_is_said(browser: Browser, service: Process) -> None:
    """The service is gone: an alert says so, and the question stays."""
    fill_in(browser, TEXTS)
    service.process.kill()
    service.process.wait()
    browser.find("#rank").click()
    browser.wait_for("#problem", "cannot be reached")
    assert browser.find("#question").get_attribute("value") == QUESTION


def test_nothing_comes_from_elsewhere(browser: Browser, service: Process) -> None:
    """The three pages work without internet, and without an error in the console."""
    browser.driver.get(f"{service.url}/status")
    browser.wait_for("#state", "random-tiny 1 is ready")
    browser.wait_for("#models", "Architecture")
    urls = browser.requested()
    browser.driver.get(f"{service.url}/docs")
    browser.wait_for("#swagger-ui", "/v1/rank")
    urls += browser.requested()
    assert len(urls) > 8
    assert [url for url in urls if not url.startswith((service.url, "data:"))] == []
    assert browser.console() == []


def test_the_status_page_counts(browser: Browser, service: Process) -> None:
    """The figures of `/metrics` appear without reloading: times and errors by kind. What is unfolded stays so."""
    browser.driver.get(f"{service.url}/status")
    browser.wait_for("#cerberank_requests_total", "1")  # the playground's example
    browser.find("#models summary").click()
    native(service, TEXTS)
    httpx.post(f"{service.url}/v1/rank", json={})
    httpx.post(f"{service.url}/v1/rank", json={})
    httpx.get(f"{service.url}/nothing")
    browser.wait_for("#cerberank_requests_total", "2")
    browser.wait_for("#cerberank_errors_total", "3")
    browser.wait_for("#now .help", "invalid 2, not found 1")
    figures = httpx.get(f"{service.url}/metrics").text
    buckets = re.findall(r'phase_seconds_bucket{le="([^"]+)".*phase="total".* ([\d.]+)$', figures, re.MULTILINE)
    half = float(next(bound for bound, count in buckets if float(count) >= 1))
    assert browser.texts("#median")[0] in {f"{1000 * half:.1f} ms", f"{1000 * half:.0f} ms", f"{half:g} s"}
    assert browser.find("#models details").get_attribute("open") == "true"


def test_behind_the_proxy_the_status_page_has_no_figures(chromium: Browser, service: Process, tmp_path: Path) -> None:
    """The proxy refuses `/metrics`: the page shows the models, says where the figures are, and asks no further."""
    with proxying(tmp_path / "nginx", [service.url]) as proxy:
        chromium.look("light", DESKTOP)
        chromium.requested()
        chromium.driver.get(f"{proxy.url}/status")
        chromium.wait_for("#models", "Architecture")
        assert chromium.find("#without-figures").is_displayed()
        assert not chromium.find("#problem").is_displayed()
        WebDriverWait(chromium.driver, 20).until(lambda _: proxy.log.count('"/v1/models"') >= 2)
        assert [url.rpartition("/")[2] for url in chromium.requested()].count("metrics") == 1


def test_the_status_page_names_labels_as_they_are(chromium: Browser, tiny_checkpoint: Path, tmp_path: Path) -> None:
    """A label that is served is not one that is not served yet."""
    store = FolderStore(tmp_path / "store")
    store.push(read_checkpoint(tiny_checkpoint))
    store.move_label("random-tiny", "stable", "1")
    settings = {"CERBERANK_STORE": str(tmp_path / "store"), "TMPDIR": str(tmp_path)}
    with serving(Path(), tmp_path / "log", **settings) as service:
        chromium.driver.get(f"{service.url}/status")
        chromium.wait_for("#models", "Labels served")
        facts = dict(zip(chromium.texts("#models dt"), chromium.texts("#models dd"), strict=True))
        assert facts["Labels served"] == "stable"
        assert facts["A rollback returns to it"] == "no"
        assert "Labels not served yet" not in facts


def test_the_status_page_describes_the_model(browser: Browser, service: Process) -> None:
    """The architecture in words, and figures that are rounded."""
    browser.driver.get(f"{service.url}/status")
    browser.wait_for("#models", "B3 3H1: 3 shared layers, 3 heads of 1 layer")
    unfold(browser)
    assert not re.search(r"\d\.\d{3}|_", browser.find("#models").text)


def test_the_api_page_follows_the_theme(browser: Browser, service: Process) -> None:
    painted = {}
    for theme in ("light", "dark"):
        browser.look(theme, DESKTOP)
        browser.driver.get(f"{service.url}/docs")
        browser.wait_for("#swagger-ui", "/v1/rank")
        classes = browser.find("html").get_attribute("class") or ""
        painted[theme] = "dark-mode" in classes
        assert len(browser.driver.find_elements("css selector", ".opblock.is-open")) == 1, "all but /v1/rank is folded"
    assert painted == {"light": False, "dark": True}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desk", "phone"])
def test_axe_finds_no_serious_violation(browser: Browser, service: Process, theme: str, size: tuple[int, int]) -> None:
    """Both pages pass, with dropped candidates in the table, and nothing is wider than the screen."""
    if not AXE.is_file():
        pytest.skip("needs axe-core: npm install --no-save axe-core")
    browser.look(theme, size)
    fill_in(browser, TEXTS)
    browser.find("#default").click()
    browser.slide("#ratio", 0.4)
    browser.find("#rank").click()
    browser.wait_for("#summary", "10 candidates in")
    assert _violations(browser) == []
    browser.driver.get(f"{service.url}/status")
    browser.wait_for("#models", "Architecture")
    unfold(browser)
    assert _violations(browser) == []


def _violations(browser: Browser) -> list[str]:
    assert browser.driver.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    browser.driver.execute_script(AXE.read_text(encoding="utf-8"))
    report = browser.driver.execute_async_script("axe.run().then(arguments[0])")
    assert len(report["passes"]) > 10
    return [
        f"{violation['id']}: {node['html']}"
        for violation in report["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]
