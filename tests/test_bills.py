"""The bill of a model, what a budget buys, and the command that prints both."""

import json

import pytest

from classroom.cli import main
from classroom.demos.costs import costs_view
from labkit.costs import bills, counting
from labkit.costs import training as costs
from labkit.costs.formulas import Shape, formula_flop_per_token
from labkit.models.gpt import GPT, GPTConfig
from labkit.weights import published

H100 = bills.machine("h100")


def test_the_bill_of_gpt3_is_that_of_its_paper():
    found = bills.bill("gpt3-175b", H100, count=1024, mfu=0.4, dollars_per_hour=2.5)
    assert found.model == "gpt-3-175b"
    assert found.petaflop_days == pytest.approx(3640, rel=0.002)
    days = 6 * found.parameters * 300e9 / (989e12 * 0.4 * 1024) / 86400
    assert found.days == pytest.approx(days)
    assert found.rent_dollars == pytest.approx(days * 24 * 1024 * 2.5)
    assert 1.02 < found.formula_flop / found.rule_flop < 1.1


def test_a_cased_model_is_not_billed_as_the_uncased_one():
    assert bills.model("BERT base").name == "bert-base-uncased"
    with pytest.raises(ValueError, match="no published model is called 'bert-base-cased'"):
        bills.model("bert-base-cased")


def test_a_mixture_pays_for_its_active_parameters_only():
    found = bills.bill("gpt-4-rumour", bills.machine("a100"), tokens=13e12)
    assert found.active_parameters == pytest.approx(280e9, rel=0.02)
    assert found.parameters == pytest.approx(1.8e12, rel=0.02)
    assert found.rule_flop == 6 * found.active_parameters * 13e12


def test_a_block_of_all_layers_is_billed_in_each(capsys):
    albert, bert = (bills.bill(name, H100, tokens=1e9)
                    for name in ("albert-base-v2", "bert-base-uncased"))  # fmt: skip
    assert 0.7 < albert.rule_flop / bert.rule_flop < 1
    assert 0.7 < albert.rule_flop / albert.formula_flop < 1.2
    assert main(["costs", "albert-base-v2", "--tokens", "1e9"]) == 0
    assert "used again in each layer: 89.65M for each token" in capsys.readouterr().out


@pytest.mark.parametrize("row", published.ROWS, ids=lambda row: row.name)
def test_every_published_model_has_a_bill(row):
    found = bills.bill(row.name, H100, tokens=1e9)
    assert found.parameters == published.parameters(row.name)
    assert found.days > 0


def test_a_model_of_your_own_from_a_file(tmp_path):
    sizes = {"layers": 2, "width": 64, "vocabulary": 100, "context": 32, "experts": 4,
             "experts_used": 2, "heads": 2}  # fmt: skip
    (tmp_path / "mine.json").write_text(json.dumps(sizes))
    found = bills.bill(str(tmp_path / "mine.json"), H100, tokens=1e6)
    assert (found.model, found.parameters) == ("mine", Shape(**sizes).parameters)
    gpt = GPT(GPTConfig(100, 64, 2, 2, 32, experts=4))
    assert found.active_parameters == counting.parameters(gpt).active < found.parameters


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "give an object"),
        ('{"layers": 1, "widht": 2}', "no size 'widht': did you mean width\\? There are layers"),
        ('{"layers": 1}', "width, vocabulary, context missing"),
        ('{"layers": 1, "width": 8.5, "vocabulary": 9, "context": 4}', "width is 8.5: give a w"),
        ('{"layers": 1, "width": 8, "vocabulary": 9, "context": 4, "causal": 1}', "true or false"),
        ('{"layers": -1, "width": 8, "vocabulary": 9, "context": 4}', "layers is -1"),
        (
            '{"layers": 1' + 400 * "0" + ', "width": 8, "vocabulary": 9, "context": 4}',
            "at most 1,0",
        ),
    ],
)
def test_a_file_that_is_wrong_says_how(tmp_path, text, message):
    (tmp_path / "mine.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        bills.bill(str(tmp_path / "mine.json"), H100, tokens=1e6)


def test_a_budget_buys_the_model_with_the_lowest_loss():
    for offer, law in zip(bills.afford(1000, H100), (costs.HOFFMANN, costs.BESIROGLU), strict=True):
        assert offer.device_hours == 400
        assert 6 * offer.parameters * offer.tokens == pytest.approx(offer.flop)
        assert offer.loss == law.loss(offer.parameters, offer.tokens)
    less, more = (
        min(offer.parameters for offer in bills.afford(money, H100)) for money in (1000, 4000)
    )
    assert less < more


WRONG = {
    "gpt5": "did you mean gpt2?",
    "gpt2 --gpu h10 --tokens 1e9": "did you mean h100?",
    "gpt2": "give --tokens",
    "gpt2 --tokens 1e9 --mfu 1.2": "mfu is 1.2: it is a share",
    "gpt2 --tokens 1e9 --count -3": "--count: '-3': give a whole number, 1 or more",
    "gpt2 --tokens 1e9 --count 1.5": "--count: '1.5': give a whole number, 1 or more",
    "gpt2 --tokens -5": "--tokens: '-5': give a finite number above 0",
    "gpt2 --tokens inf": "--tokens: 'inf': give a finite number above 0",
    "gpt2 --tokens 1e9 --price -1": "--price: '-1': give a finite number above 0",
    "--budget 0.0001": "too little for any model",
    "--budget -1": "--budget: '-1': give a finite number above 0",
    "--budget 0": "--budget: '0': give a finite number above 0",
    "--budget 1e308": "--budget: '1e308': give a finite number above 0",
    "--budget 100 --tokens 1e9": "--tokens is for a model, and none is named: leave it out",
    "--budget 100 --count 8": "--count is for a model, and none is named: leave it out",
    "missing.json --tokens 1e9": "there is no file missing.json",
    "--tables --price 3": "--price is for a model or --budget: leave it out",
    "": "give a model, --budget, --tables or --figure",
    "--figure compute.gif": "compute.gif: give a name that ends in .png, .svg or .pdf",
    "--figure compute": "compute: give a name that ends in .png, .svg or .pdf",
    "gpt2 --tockens 3": "did you mean --tokens?",
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_words_get_one_line_and_exit_code_2(words, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["costs", *words.split()])
    said = capsys.readouterr().err
    assert stopped.value.code == 2
    assert said.count("\n") == 1
    assert WRONG[words] in said


def printed(capsys, words: str) -> str:
    """What `labkit costs` prints, no line of which is wider than a hundred columns."""
    assert main(["costs", *words.split()]) == 0
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 100
    return said


def test_no_line_is_wide_and_no_small_amount_is_zero(capsys):
    said = printed(capsys, "transformer-big --tokens 1e6 --gpu tpu-v2 --mfu 0.004")
    assert "at 0.4% of the peak" in said
    assert " 0 " not in said
    said = printed(capsys, "gpt-3-175b")
    assert "weights, gradients, AdamW    2,794 GB: the memory of 35 such devices, more than" in said
    assert "2,794 GB\n" in printed(capsys, "gpt-3-175b --count 35")
    assert "2,794 GB\n" in printed(capsys, "gpt-3-175b --gpu cpu-core")
    printed(capsys, "--tables")
    said = printed(capsys, "--budget 1000")
    assert "1,000 dollars buy 1,000 hours of one a100: 4.49e+20 FLOP at 40% of the peak" in said
    assert "nats per token" in said
    assert "22, near the twenty" in said
    assert "8; at the budgets of the paper" in printed(capsys, "--budget 1e20")


def test_the_tokens_of_bert_are_those_of_table_d1_and_are_doubted(capsys):
    said = " ".join(printed(capsys, "bert-large").split())
    assert "2.5e+11 tokens (Table D.1 of Brown et al. 2020) BERT's paper" in said
    assert "43 billion tokens, not 250." in said
    assert "43 billion" not in printed(capsys, "bert-large --tokens 42.6e9")
    assert costs_view("bert-large", "a100").text.endswith("not 250.")
    assert bills.bill("gpt-3-small", H100).doubt == ""


@pytest.mark.parametrize("name", ["transformer-xl-base", "xlnet-base-cased"])
def test_models_that_the_formula_does_not_fit_have_none(name):
    """It gave twice the operations that a Transformer-XL with its adaptive softmax takes."""
    assert bills.model(name).shape is None
    assert bills.bill(name, H100, tokens=1e9).formula_flop is None


def test_the_command_prints_for_people_and_for_machines(capsys):
    assert main(["costs", "gpt3-175b", "--gpu", "h100", "--count", "1024", "--price", "2.5"]) == 0
    said = capsys.readouterr().out
    assert "174.6B (174,604,259,328)" in said
    assert "551,7" in said
    assert main(["costs", "bert-base", "--budget", "1000", "--json"]) == 0
    bill, *offers = json.loads(capsys.readouterr().out)
    assert bill["parameters"] == published.parameters("bert-base-uncased")
    assert [offer["law"][:4] for offer in offers] == ["Hoff", "Besi"]
    assert main(["costs", "--tables"]) == 0
    said = capsys.readouterr().out
    assert "Table D.1" in said
    assert "xlnet: dollars [$]" in said


def test_a_budget_buys_operations_and_a_bill_what_they_take() -> None:
    for offer in bills.afford(1000, H100, mfu=0.3, dollars_per_hour=2.0):
        assert offer.device_hours == 500
        assert offer.flop == pytest.approx(500 * 3600 * 989e12 * 0.3)
    for offer in bills.afford(1000, H100):
        assert offer.flop == pytest.approx(400 * 3600 * 989e12 * 0.4)
    found = bills.bill("gpt-4-rumour", H100, count=1024, tokens=13e12)
    assert found.state_bytes == 16 * found.parameters
    hours = 24 * found.days * 1024
    assert found.energy_kwh == pytest.approx(hours * H100.watts / 1000 * 1.1)
    assert found.co2_kg == pytest.approx(found.energy_kwh * 0.429)
    shape = bills.model("gpt3-175b").shape
    found = bills.bill("gpt3-175b", H100)
    for flop, masked in ((found.formula_flop, False), (found.masked_flop, True)):
        assert flop == pytest.approx(300e9 * formula_flop_per_token(shape, masked=masked))
    assert found.masked_flop < found.formula_flop
