"""Trainers of others are given a Loader: Lightning, and Hugging Face's Trainer.

Their packages go into a virtual environment of their own, build/peers/trainers, which sees this one's torch and
bedplate; where PyPI cannot be reached these tests are skipped by name.
"""
import json
import pathlib
import subprocess
import sys
import sysconfig

import pytest

pytest.importorskip("bedplate.data", reason="the package has no extension module here", exc_type=ImportError)
pytest.importorskip("torch")
ROOT = pathlib.Path(__file__).resolve().parents[2]

MAKE = """
import sys
import numpy
from bedplate.data import Dataset, Loader, ShardWriter

folder = sys.argv[1]
with ShardWriter(folder + "/000000.shard", {"x": ("float32", [4]), "labels": "int64"}) as out:
    for i in range(200):
        out.write(x=numpy.full(4, i % 7, "float32"), labels=i)
loader = Loader(Dataset(folder + "/"), 8, seed=1)
seen = []
"""

LIGHTNING = MAKE + """
import json, torch, lightning

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        seen.append(batch["labels"].tolist())
        return self.layer(batch["x"]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-3)

trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Model(), loader)
print("SEEN", json.dumps(seen))
"""

TRANSFORMERS = MAKE + """
import json, torch, transformers

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x, labels):
        seen.append(labels.tolist())
        return {"loss": self.layer(x).square().mean()}

class Trainer(transformers.Trainer):
    def get_train_dataloader(self):
        return loader

arguments = transformers.TrainingArguments(output_dir=folder + "/out", num_train_epochs=2, use_cpu=True, report_to=[],
                                           save_strategy="no", logging_strategy="no", disable_tqdm=True,
                                           per_device_train_batch_size=8)
Trainer(Model(), arguments, train_dataset=range(200)).train()
print("SEEN", json.dumps(seen))
"""


@pytest.fixture(scope="module")
def python():
    venv = ROOT / "build/peers/trainers"
    done = venv / ".done"
    if not done.exists():
        try:
            subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True, timeout=120)
            site = next(venv.glob("lib/python*/site-packages"))
            (site / "outer.pth").write_text(sysconfig.get_path("purelib") + "\n")
            subprocess.run([venv / "bin/python", "-m", "pip", "install", "-q", "lightning==2.6.6", "transformers==5.24.0", "accelerate==1.15.0"],
                           check=True, timeout=600, capture_output=True)
        except subprocess.SubprocessError as problem:
            pytest.skip("lightning, transformers and accelerate could not be had: %s" % str(getattr(problem, "stderr", problem))[-200:])
        done.touch()
    return venv / "bin/python"


@pytest.mark.parametrize("script", [LIGHTNING, TRANSFORMERS], ids=["lightning", "transformers"])
def test_a_trainer_takes_a_loader(python, tmp_path, script):
    done = subprocess.run([python, "-c", script, tmp_path], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("SEEN "))
    batches = json.loads(line[5:])
    assert len(batches) == 50 and all(len(batch) == 8 for batch in batches)
    for epoch in (batches[:25], batches[25:]):
        assert sorted(label for batch in epoch for label in batch) == list(range(200))
    assert batches[:25] != batches[25:]
