"""Mistakes put into the JavaScript of the live pages and into the Python it mirrors: all are found.

Each side is the check of the other: a mistake is found where one no longer tells what the other
does, over the same states of the same models.
"""

import inspect
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
from mutants import everywhere
from test_live_pages import LIVE, NODE, alike, in_python

from classroom.cli.site import models
from classroom.demos import View, guesses, masking, reading, rendering, statistics
from classroom.demos import attention as attentions
from classroom.demos import sampling as samplings
from classroom.pages.live import building
from classroom.pages.live.written import written_language, written_model

pytestmark = pytest.mark.skipif(
    NODE is None, reason="node is not installed: pip install nodejs-bin"
)

# ---- the states that both sides tell -------------------------------------------------------------

# More words than the model has positions, 129.
LONG = " ".join(building.sentences(20))
ODD = 'The OAK ist & "<b>" supercalifragilisticexpialidocious'


@cache
def states() -> dict[str, list[dict[str, Any]]]:
    """For each view, some states in which as much as possible happens."""
    texts, document = (
        [*building.sentences(3), ODD],
        building.village().sample(documents=1, seed=4)[0],
    )
    usual = {"written": [], "temperature": 1.0, "topK": 0, "topP": 1.0, "seed": 3}
    changed = [{}, {"temperature": 0.5}, {"temperature": 2.0, "topK": 3}, {"topP": 0.9},
               {"temperature": 0.0}, {"topP": 0.4, "seed": 8}, {"written": [9, 3]}]  # fmt: skip
    # Where much may follow, where documents remember, and beyond the model's positions.
    asked = [{**usual, "prompt": "hugo had a", **one} for one in changed]
    asked += [{**usual, "prompt": " ".join(document.words[:n])} for n in (11, 19, 26)]
    asked += [{**usual, "prompt": LONG}, {**usual, "prompt": ODD}, {**usual, "prompt": ""}]
    how = [(0.15, 0.8, 0.1, []), (1.0, 0.0, 0.5, [2]), (0.5, 0.3, 0.7, [1, 4]), (1.0, 1.0, 0, [3])]
    hiding = [
        {"text": text, "rate": rate, "mask": mask, "random": share, "draw": n, "clicked": clicked}
        for n, (text, (rate, mask, share, clicked)) in enumerate(
            (text, one) for text in texts for one in how
        )
    ]
    looking = [
        {"text": text, "layer": 1 + n % 2, "head": n % 5, "every": n % 3 == 0, "selected": n}
        for n, text in enumerate(texts * 3)
    ]
    return {"sampling": asked, "masking": hiding, "attention": looking}


def view_of(name: str, n: int) -> View:
    """The view of a state."""
    gpt, bert = models()
    known = gpt if name == "sampling" else bert
    return in_python(name, states()[name][n], *known, building.village())


# ---- JavaScript: each mistake is a text that takes the place of another one ----------------------
# First stands the view that shows it: it is told alone, and the others where it shows nothing.

IN_JAVASCRIPT = [
    ("attention", "engine", "a half-precision weight loses its sign",
     "half >> 15 ? -size : size", "size"),
    ("attention", "engine", "GELU of the wrong width", "erf(x / Math.SQRT2)", "erf(x)"),
    ("sampling", "engine", "GPT has BERT's GELU", "0.044715 * x ** 3", "0.4 * x ** 3"),
    ("attention", "engine", "scores are divided by the width of a head", "/= Math.sqrt(E)", "/= E"),
    ("sampling", "engine", "GPT sees the future", "(t) => t + 1", "() => tokens.length"),
    ("attention", "engine", "BERT sees the past alone", "() => tokens.length", "(t) => t + 1"),
    ("attention", "engine", "the norm forgets its bias",
     "weight.data[i] + bias.data[i]", "weight.data[i]"),
    ("attention", "engine", "GPT normalises after each part", "if (first)", "if (!first)"),
    ("sampling", "engine", "kept keys of another text", "tokens[past] === this.tokens[past]",
     "past < this.tokens.length"),
    ("sampling", "engine", "positions begin again with each word",
     "(past + t) * width + d", "t * width + d"),
    ("sampling", "engine", "top-p leaves out the word that reaches p", "above < topP",
     "above + shares[kept] <= topP"),
    ("sampling", "engine", "top-k keeps one more", "falling()[topK - 1]", "falling()[topK]"),
    ("sampling", "engine", "temperature multiplies", "s / temperature", "s * temperature"),
    ("sampling", "engine", "the halves of 64 bits are swapped",
     "both)), Number(BigInt.asIntN(32, both >> 32n))",
     "both >> 32n)), Number(BigInt.asIntN(32, both))"),
    ("sampling", "engine", "a long text keeps its seed", "seed + 1000003 * dropped", "seed"),
    ("sampling", "engine", "words are drawn from the end",
     "> number) return w", "> 1 - number) return w"),
    ("masking", "engine", "special tokens are hidden",
     "hide[t] < rate && !special.special.includes(w)",
     "hide[t] < rate"),
    ("masking", "engine", "random words take [MASK]'s share",
     "fate[t] < mask + random", "fate[t] < random"),
    ("sampling", "engine", "a state is entered twice",
     "if (t) now = this.step(now)", "now = this.step(now)"),
    ("masking", "engine", "names may be wrong",
     "[words[t]] >= 0) ? 0 : p", "[words[t]] >= 0) ? p : p"),
    ("masking", "engine", "the sums of the words after are forgotten", "p * after[t][s]", "p"),
    ("masking", "views", "what is seen is certain",
     "kept.push(1 - rate + rate * keep)", "kept.push(1)"),
    ("masking", "views", "each other word is as likely as all",
     "push(random / others)", "push(random)"),
    ("masking", "views", "a click on a hidden word does nothing",
     "before.has(n) !== clicked.has(n)",
     "before.has(n) || clicked.has(n)"),
    ("masking", "views", "the divergence is turned around",
     "p * (Math.log(p) - Math.log(byModel(n)))",
     "byModel(n) * (Math.log(byModel(n)) - Math.log(p))"),
    ("attention", "views", "capital letters are unknown",
     "this.number.has(word.toLowerCase())", "false"),
    ("attention", "views", "the mean of the heads is their sum",
     "rows[q][k])) / heads", "rows[q][k]))"),
    ("masking", "views", "one standard error", "(2 * Math.sqrt", "(1 * Math.sqrt"),
    ("masking", "views", "a random word is never the word",
     "again = random / ordinary.length", "again = 0"),
    ("sampling", "views", "the model's entropy is the language's",
     "[entropy(exact), entropy(first)",
     "[entropy(first), entropy(exact)"),
    ("attention", "render", "quotes are not escaped", "/[&<>\"']/g", "/[&<>']/g"),
    ("sampling", "render", "a share of zero has digits", 'value === 0 ? "0"', 'value === -1 ? "0"'),
]  # fmt: skip

RUN = """
const fs = require("fs"), given = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
let right = null;
// The modules, one of them with a mistake; an engine without one is not read again.
function loaded(mutant) {
  const made = {}, names = { render: "Render", engine: "Engine", views: "Views" };
  for (const [file, name] of Object.entries(names)) {
    let source = given.sources[file];
    if (mutant && mutant[1] === file) {
      if (source.split(mutant[3]).length !== 2) throw new Error(`not once: ${mutant[3]}`);
      source = source.replace(mutant[3], () => mutant[4]);
    }
    if (right && file === "engine" && mutant[1] !== file) made.engine = right.engine;
    else {
      const module = { exports: {} };
      new Function("module", "require", source)(module, (path) => made[path.slice(2, -3)]);
      made[file] = module.exports;
    }
    globalThis[name] = made[file];
  }
  made.has = made.engine === right?.engine ? right.has : built(made.engine);
  return made;
}
// The models and the language of an engine, each read when it is first asked for.
function built(engine) {
  const made = {}, how = {
    gpt: () => new engine.GPT(given.gpt), bert: () => new engine.BERT(given.bert),
    language: () => new engine.Language(given.language),
  };
  return (name) => (made[name] ??= how[name]());
}
function told({ views, render, has }, name) {
  const tokenizer = new views.Tokenizer(given.gpt), language = has("language");
  const [kind, start] = name === "sampling" ? ["gpt", "document"] : ["bert", "sentence"];
  const model = has(kind);
  return given.states[name].map((state) => {
    try {
      const view = views[name](state, { model, tokenizer, language, start });
      return [render.text(view), render.html(view)];
    } catch (error) { return [`error: ${error.message}`, ""]; }
  });
}
const found = {};
for (const mutant of [null, ...given.mutants]) {
  const modules = loaded(mutant);
  right ??= modules;
  for (const name of new Set([...(mutant ? [mutant[0]] : []), ...Object.keys(given.states)])) {
    const now = told(modules, name);
    const differs = (one, n) => String(one) !== String(found[null][name][n]);
    if (!mutant) (found[null] ??= {})[name] = now;
    else {
      const at = now.findIndex(differs);
      if (at < 0) continue;
      found[mutant[2]] = now.flatMap((one, n) => (differs(one, n) ? [[name, n, ...one]] : []));
      break;
    }
  }
}
process.stdout.write(JSON.stringify(found));
"""


@cache
def in_javascript() -> dict[str, Any]:
    """What JavaScript tells, and what it tells otherwise with each mistake."""
    (gpt, of_gpt), (bert, of_bert) = models()
    names = ("render", "engine", "views")
    given = {
        "sources": {name: (LIVE / f"{name}.js").read_text(encoding="utf-8") for name in names},
        "gpt": written_model(gpt, of_gpt), "bert": written_model(bert, of_bert),
        "language": written_language(building.village()), "states": states(),
        "mutants": IN_JAVASCRIPT,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        data, script = Path(folder, "given.json"), Path(folder, "run.js")
        data.write_text(json.dumps(given), encoding="utf-8")
        script.write_text(RUN, encoding="utf-8")
        done = subprocess.run([str(NODE), str(script), str(data)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@cache
def python_tells(name: str, n: int) -> tuple[str, str]:
    view = view_of(name, n)
    return view.text, view.html


def test_both_sides_tell_the_same_without_a_mistake() -> None:
    for name, told in in_javascript()["null"].items():
        for n, (text, html) in enumerate(told):
            assert alike(text, python_tells(name, n)[0]), (name, states()[name][n])
            assert alike(drawn(html), drawn(python_tells(name, n)[1])), (name, n)


def drawn(html: str) -> str:
    """The HTML without what follows the last digits of floats: widths, shades, names of maps."""
    return re.sub(r"map-\d+|--h\d+:[\d.]+;?|width:[\d.]+%|rgba\([^)]*\)|fill-opacity=\S+", "", html)


@pytest.mark.parametrize("mistake", [one[2] for one in IN_JAVASCRIPT])
def test_a_mistake_in_javascript_is_found(mistake: str) -> None:
    told = in_javascript().get(mistake, [])
    assert any(
        not alike(text, python_tells(name, n)[0])
        or not alike(drawn(html), drawn(python_tells(name, n)[1]))
        for name, n, text, html in told
    )


# ---- Python: each mistake is a text that takes the place of another one in a function ------------

IN_PYTHON: list[tuple[str, ModuleType, str, str, str, str]] = [
    ("masking", masking, "with_clicks", "before ^ clicked", "before | clicked",
     "a click on a hidden word does nothing"),
    ("masking", masking, "with_clicks", "where(before, mask)", "where(~before, mask)",
     "a click hides what was hidden and shows what was shown"),
    ("masking", masking, "fate", 'return ("kept", "kept") if token == original',
     'return ("kept", "kept") if token != original', "kept and random words are confused"),
    ("masking", masking, "chips_of", 'else "special", ""', 'else "plain", ""',
     "special tokens look like words"),
    ("masking", masking, "answers", "positions = sorted(asked_positions(targets))",
     "positions = sorted(asked_positions(targets))[1:]", "the first answer is left out"),
    ("masking", guesses, "masked", "1 - rate + rate * keep", "1.0", "what is seen is certain"),
    ("masking", guesses, "masked", "keep, replace / others", "keep, replace",
     "each other word is as likely as all"),
    ("masking", guesses, "in_nats", "(distribution[likely] * ratio)", "(by_model[likely] * ratio)",
     "the divergence is turned around"),
    ("masking", statistics, "ratio", "2 * spread", "1 * spread", "one standard error"),
    ("masking", statistics, "masked", "again = objective", "again = 0 * objective",
     "a random word is never the word itself"),
    ("masking", reading, "best", "-np.round", "np.round", "the unlikeliest words are listed"),
    ("masking", reading, "in_vocabulary", "return word.lower()", "return word",
     "capital letters are unknown"),
    ("sampling", samplings, "seed_of", "1_000_003 * dropped", "0 * dropped",
     "a long text keeps its seed"),
    ("sampling", samplings, "drawn_number", "[0, -1]", "[0, 0]", "the first number is shown"),
    ("sampling", samplings, "lot", "last[:drawn]", "last[: drawn + 1]",
     "the drawn word stands before itself"),
    ("sampling", samplings, "in_nats", "entropy(exact_V), entropy(model_V)",
     "entropy(model_V), entropy(exact_V)", "the model's entropy is the language's"),
    ("sampling", samplings, "formulas", "power = 1 / settings", "power = 1 * settings",
     "temperature multiplies in its formula"),
    ("sampling", samplings, "log_probabilities", "scores_TV[:-1]", "scores_TV[1:]",
     "each word is read before it is predicted"),
    ("sampling", samplings, "distributions", "descending=True", "descending=False",
     "the unlikeliest words are listed"),
    ("attention", attentions, "picked", "found[head - 1]", "found[-head]",
     "heads are counted from the end"),
    ("attention", attentions, "most", "row.argmax()", "row.argmin()",
     "the least share is called the largest"),
    ("masking", rendering, "safe", "escape(clean(text))", "escape(clean(text), quote=False)",
     "quotes are not escaped"),
]  # fmt: skip


@contextmanager
def planted(module: ModuleType, name: str, old: str, new: str) -> Iterator[None]:
    """A function with a text replaced, wherever the package has it."""
    original = getattr(module, name)
    source = inspect.getsource(inspect.unwrap(original))
    assert source.count(old) == 1, f"not once in {name}: {old}"
    scope = dict(vars(module))
    exec(source.replace(old, new), scope)
    with ExitStack() as stack:
        stack.enter_context(patch.object(module, name, scope[name]))
        stack.enter_context(everywhere(original, scope[name]))
        masking.over_draws.cache_clear()
        yield
    masking.over_draws.cache_clear()


@pytest.mark.parametrize("mutant", IN_PYTHON, ids=lambda mutant: mutant[-1])
def test_a_mistake_in_python_is_found(mutant: Any) -> None:
    view, module, name, old, new, _ = mutant
    told = in_javascript()["null"][view]
    with planted(module, name, old, new):
        assert any(differs(view, n, *one) for n, one in enumerate(told))


def differs(name: str, n: int, text: str, html: str) -> bool:
    """Whether Python, as it is now, tells a state otherwise than JavaScript."""
    try:
        view = view_of(name, n)
        return not alike(text, view.text) or not alike(drawn(html), drawn(view.html))
    except (IndexError, ValueError, RuntimeError):
        return True


def test_there_are_enough_mistakes() -> None:
    assert len(IN_JAVASCRIPT) >= 15
    assert len(IN_PYTHON) >= 15
    assert len({one[2] for one in IN_JAVASCRIPT}) == len(IN_JAVASCRIPT)
