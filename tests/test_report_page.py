"""The pages in a real browser, from disk: what a hostile model wrote stays text, filters and links work, no error.

Chromium is the system's (Debian: apt-get install chromium), driven by Playwright. Without either these tests are
skipped, unless SEQUOR_BROWSER=required says that they must not be.
"""

import os
import re
import shutil
from pathlib import Path
from urllib.parse import unquote

import pytest
from madeup import write_run

from sequor.report.report import Options, write_report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HOSTILE = '<script>window.hacked = 1</script><img src=x onerror="window.hacked = 2"></div>\u2028\u202e'
LONG = HOSTILE + "\n" + "word " * 20_000 + "THE END"
NAME = "a\"><img src=x onerror='window.hacked=3'>&run=r9"

try:
    from playwright.sync_api import Page, expect, sync_playwright
except ImportError:
    CHROMIUM = None

if CHROMIUM is None and os.environ.get("SEQUOR_BROWSER") != "required":
    pytest.skip("no Chromium or no Playwright on this machine", allow_module_level=True)


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    rows = {NAME: "s. sv vv us", "b": "s. ss ss ss", "c": "v. ss s. -s"}
    turns = {
        ("everything", NAME, 1): {"answer": LONG, "reasoning": HOSTILE},
        ("everything", NAME, 2): {"answer": "short", "dropped_turns": 1},
        ("everything", "c", 4): {"status": "context_overflow", "answer": None, "detail": HOSTILE},
    }
    more = {"turns": turns, "texts": {"c0": HOSTILE, "c1": "Be brief."}, "user": HOSTILE + "\n\n\nWhy {turn}?"}
    sets = {"everything": rows, "single": {"b": "s s s v", "c": "s s v v"}}
    others = {"__proto__": {"everything": {"b": "v. ss ss ss"}}}
    one = write_run(folder / "one", sets, model="evil/<b>bold</b>", others=others, **more)
    two = write_run(folder / "two", {"single": sets["single"]}, model="good/model", **more)
    write_report([one, two], folder / "out", Options(resamples=200, processes=1))
    return folder / "out"


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser, report):
    """A page that must not have said anything wrong, asked for anything outside its folder, or been taken over."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page, wrong = context.new_page(), []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: None if asked.url.startswith(("file://", "data:")) else wrong.append(asked.url))
    yield page
    assert wrong == []
    assert page.evaluate("window.hacked") is None
    context.close()


def visit(page: "Page", report: Path, where: str = "") -> None:
    page.goto(f"file://{report}/index.html{where}")
    page.wait_for_selector("main h1")


def rows(page: "Page") -> list[str]:
    return page.locator(".list .id").all_text_contents()


def test_it_opens_from_disk_and_shows_the_models_by_name(page, report):
    visit(page, report)
    assert "b>" in page.locator(".leader").inner_text() and page.locator(".leader b b").count() == 0
    expect(page.locator(".notes")).to_contain_text("model has no everything")


def test_what_is_not_there_leaves_no_word_behind(page, report):
    for where in ("#/summary?set=everything", "#/summary?set=single", "#/browse?set=single", "#/figures", "#/tables"):
        visit(page, report, where)
        words = page.locator("main").inner_text().split()
        assert not {"null", "undefined", "NaN", "[object"} & set(words)


def test_a_hostile_transcript_is_text_to_its_last_character(page, report):
    visit(page, report, "#/browse?set=everything")
    page.get_by_role("link", name=re.compile("^a")).click()
    page.wait_for_selector(".turn")
    answer = page.locator("#turn-1 .answer > .say")
    assert answer.text_content() == LONG
    assert page.locator("#turn-1 .rule .what").first.text_content() == HOSTILE
    assert page.locator("main img, main script, main iframe").count() == 0
    page.locator("#turn-1 .answer summary").click()
    assert page.locator("#turn-1 .answer details .say").text_content() == HOSTILE
    before = answer.bounding_box()["height"]
    page.get_by_role("button", name=re.compile("Show all")).click()
    assert answer.bounding_box()["height"] > 2 * before
    assert unquote(page.url).count("onerror") == 1  # the dialogue's name is one value of the address


def test_judges_words_are_folded_and_there(page, report):
    visit(page, report, "#/transcript?set=everything&dialogue=b&turn=2")
    rule = page.locator("#turn-2 .rule").first
    expect(rule).to_contain_text("given at turn 1")
    rule.locator("summary").first.click()
    expect(rule).to_contain_text("I looked. Final verdict: yes")


def test_filters_choose_the_dialogues(page, report):
    visit(page, report, "#/browse?set=everything")
    assert len(rows(page)) == 3
    page.select_option("select[name=show]", "failed")
    assert sorted(rows(page)) == sorted([NAME, "c"])
    page.fill("input[name=turn]", "3")
    assert rows(page) == [NAME]
    page.fill("input[name=turn]", "")
    page.select_option("select[name=show]", "unreadable")
    assert rows(page) == [NAME]
    page.select_option("select[name=show]", "unanswered")
    assert rows(page) == ["c"]
    page.select_option("select[name=show]", "failed")
    page.select_option("select[name=rule]", "c1")
    assert rows(page) == [NAME]  # c fails by c0 alone
    page.reload()
    page.wait_for_selector(".list .id")
    assert rows(page) == [NAME]  # the address holds the filters


def test_another_judge_is_another_view(page, report):
    visit(page, report, "#/browse?set=everything&show=failed")
    page.select_option("select[name=judge]", "__proto__")
    assert rows(page) == ["b"]


def test_turns_are_filtered_linked_and_walked_by_keys(page, report):
    visit(page, report, "#/transcript?set=everything&dialogue=" + "b")
    page.select_option("select[name=only]", "changes")
    assert page.locator(".turn:visible").count() == 2
    visit(page, report, "#/transcript?set=everything&show=&dialogue=c&turn=3")
    expect(page.locator("#turn-3")).to_have_class(re.compile("at"))
    page.keyboard.press("p")
    expect(page.locator("#turn-1")).to_have_class(re.compile("at"))
    assert "turn=1" in page.url
    page.keyboard.press("j")
    expect(page.locator("#turn-2")).to_have_class(re.compile("at"))
    page.keyboard.press("[")
    expect(page.locator("h1")).to_have_text("b")
    page.keyboard.press("u")
    page.wait_for_selector(".list")


def test_what_the_window_dropped_is_said(page, report):
    visit(page, report, "#/browse?set=everything")
    page.get_by_role("link", name=re.compile("^a")).click()
    expect(page.locator("#turn-2")).to_contain_text("first 1 turn out of context")
    expect(page.locator("#turn-2 .rule").first).to_contain_text("given at turn 1, out of context")


def test_a_turn_without_an_answer_says_why(page, report):
    visit(page, report, "#/transcript?set=everything&dialogue=c&turn=4")
    expect(page.locator("#turn-4")).to_contain_text("No answer: context overflow.")


def test_a_point_of_the_curve_leads_to_what_failed_there(page, report):
    visit(page, report, "#/summary?set=single")
    chart = page.locator(".chart svg").first
    box = chart.bounding_box()
    chart.click(position={"x": box["width"] - 14, "y": box["height"] * 0.86})  # the last turn, where all failed
    page.wait_for_selector(".list")
    assert "show=failed" in page.url and "turn=4" in page.url
    assert rows(page) == ["b", "c"]


def test_the_curve_is_walked_by_keys(page, report):
    visit(page, report, "#/summary?set=single")
    chart = page.locator(".chart svg").first
    chart.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    page.wait_for_selector(".list")
    assert "turn=3" in page.url and rows(page) == ["c"]


def test_every_link_leads_somewhere(page, report):
    for where in ("#/figures", "#/tables"):
        visit(page, report, where)
        links = page.eval_on_selector_all("main a[href]", "all => all.map(a => a.getAttribute('href'))")
        files = [report / link for link in links if not link.startswith("#")]
        assert files and all(file.exists() for file in files)
    visit(page, report, "#/figures")
    page.evaluate("document.querySelectorAll('img').forEach(i => { i.loading = 'eager'; })")
    page.evaluate("Promise.all([...document.images].map(i => i.decode()))")  # rejected where one cannot be read
    assert page.evaluate("[...document.images].filter(i => i.naturalWidth > 100).length") > 10


def test_a_curve_of_what_is_mostly_undecided_is_faint_and_a_lone_point_is_seen(page, tmp_path):
    crashed = {"single": {"a": "s s s s"} | {name: "- - - -" for name in "bcd"}}
    whole = {"single": {name: "s s v s" for name in "abcd"}}
    runs = [write_run(tmp_path / name, sets, model=name) for name, sets in (("crashed", crashed), ("whole", whole))]
    write_report(runs, tmp_path / "out", Options(resamples=50, processes=1))
    visit(page, tmp_path / "out")
    curves = page.locator("section.card", has_text="Accuracy at each turn")
    expect(curves.locator(".legend")).to_contain_text("crashed (25% decided)")
    expect(curves.locator(".faint")).to_have_count(1)
    expect(curves).to_contain_text("Faint: too little is decided to compare it.")
    count = page.locator("section.card", has_text="Constraints in force")
    assert [box["width"] > 2 for box in (s.bounding_box() for s in count.locator(".series").all())] == [True, True]
    expect(page.locator("section.card", has_text="Turns since")).to_contain_text("Too few verdicts for a curve.")


def test_what_is_not_there_is_said(page, report):
    visit(page, report, "#/transcript?set=everything&dialogue=nobody")
    expect(page.locator("main")).to_contain_text("There is no such dialogue in this report: nobody")


def test_it_is_dark_for_whoever_wants_it_dark_and_light_on_paper(page, report):
    page.emulate_media(color_scheme="dark")
    visit(page, report)
    ground = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0)"
    assert page.evaluate(ground) < 150
    page.emulate_media(color_scheme="dark", media="print")
    assert page.evaluate(ground) == 3 * 255
    assert page.locator("header.bar").is_hidden()


def test_nothing_is_wider_than_a_telephone(page, report):
    page.set_viewport_size({"width": 380, "height": 800})
    for where in (
        "#/summary",
        "#/browse?set=everything",
        "#/transcript?set=everything&dialogue=b",
        "#/figures",
        "#/tables",
    ):
        visit(page, report, where)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), where
