//! The ledger as a page of documentation.

use std::fmt::Write;

use super::{Aspect, Claim, Ledger};

const INTRODUCTION: &str = "\
# What the studies claim

`adverb claims` prints this page; `adverb claims FOLDER` judges the records of a study by it, and so do the report and
the last lines of `adverb study`. Each claim is a statement of a published study, in our words, with the condition
under which records support it. The answer is one of

- **holds** or **does not hold**, with the figures;
- **not measured**: no record of a cell that the condition needs;
- **this device cannot tell**, with the reason.

Sizes and numbers of buffers that are ranges mean every one that was measured; a condition has to be true at all of
them. Values are medians over the repetitions. A value counts as smaller than another one if it is by 2 % or more.
Bounds are those of the published value (reading accuracy, or the words of the text); where only the direction is
known, the condition is the direction. *Found in* has the ids of the published values in
`crates/model/validate/data/visible.csv` and `calibration.csv` that a claim was taken from. Where the study's text was
not at hand, it names what the claim follows from instead: such a claim is not the authors' statement, but what their
figure has to show if the source named there is right. Parameters that a condition does not name are those of
`adverb ping` and `adverb blast`: not inline, busy polling, one buffer, single posts, every request signaled, the link's
own rate. On a model of other hardware than a claim was stated of, the answer says whether the finding carries over; the
counts name the claims that were stated of the model's own hardware. A claim that compares InfiniBand with RoCE needs
records of both kinds of ports of one adapter, and is judged on the InfiniBand device. A claim about several generations of
NICs needs the records of all their models in one folder, and is judged once, on the first of them.

A condition `METRIC of PROGRAM PARAMETER=VALUE …` is about records of any program in the folder: the metric that the
record has under this path of names. `none` means that the record does not have the parameter, `tcp` as the transport
also means records of the device `tcp`. `A or B` takes the first of the values that there are records of, and `requesters 1
to 7` the mean of what these roles measured. Every record that one side names is compared with every one that the other side
names; other parameters may have any value. Where records have repetitions of the metric, the answer has to be the same in
all of them. These commands write what the claims need, here for a model (`soft@ADDR` and
`verbs:NAME` have `--device tcp` instead of `--over tcp`), in the folder of the study:

```console
adverb study --study russell --device DEVICE --out DIR
adverb connect --size 4K,16M --device DEVICE --out DIR --resume
adverb connect --rnr-retry 5 --device DEVICE --out DIR --resume
adverb connect --over tcp --device DEVICE --out DIR --resume
adverb mcast --receives 1,64 --device DEVICE --out DIR --resume
adverb ping --op send --over tcp --device DEVICE --out DIR --resume
adverb ping --op send --over tcp --completion event --device DEVICE --out DIR --resume
adverb blast --op send --size 1M --completion event --device DEVICE --out DIR --resume
adverb blast --op send --size 1M --completion event --over tcp --device DEVICE --out DIR --resume
```

What a claim is *about* decides which devices can answer it:

| about | which devices cannot tell, and what holds by construction |
|---|---|
";

impl Aspect {
    const ALL: [Aspect; 10] = [
        Aspect::Nic,
        Aspect::Testbed,
        Aspect::Pending,
        Aspect::Offload,
        Aspect::Polling,
        Aspect::Fitted,
        Aspect::Unstated,
        Aspect::Link,
        Aspect::Rate,
        Aspect::Apart,
    ];

    /// Returns the word of the ledger's files.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Aspect::Nic => "nic",
            Aspect::Testbed => "testbed",
            Aspect::Pending => "pending",
            Aspect::Offload => "offload",
            Aspect::Polling => "polling",
            Aspect::Fitted => "fitted",
            Aspect::Unstated => "unstated",
            Aspect::Link => "link",
            Aspect::Rate => "rate",
            Aspect::Apart => "apart",
        }
    }

    const fn meaning(self) -> &'static str {
        match self {
            Aspect::Nic => {
                "not `soft`, `soft@ADDR` and Soft-RoCE: they have no NIC that fetches work requests and payload by DMA"
            }
            Aspect::Testbed => {
                "an absolute figure of the study's hardware: only hardware, and the model of that hardware"
            }
            Aspect::Pending => {
                "not `soft`: its one-sided requests complete while they are posted, so that nobody waits for them"
            }
            Aspect::Offload => {
                "not `soft@ADDR` and Soft-RoCE: there the passive side's CPU does the work of its NIC. Holds by construction in the model"
            }
            Aspect::Fitted => {
                "a parameter of the model is fitted to this value, so that the model is bound to agree"
            }
            Aspect::Unstated => {
                "a ratio of absolute figures whose host and message size the source does not state: no device can tell"
            }
            Aspect::Polling => "every device can tell; holds by construction in the model",
            Aspect::Link => {
                "not `soft`, `soft@ADDR` and Soft-RoCE: they have no link of a known speed"
            }
            Aspect::Rate => {
                "a rate that no link exceeds; holds by construction in the model, whose link sends no faster"
            }
            Aspect::Apart => {
                "parts of a machine that nothing in the model connects: holds by construction there"
            }
        }
    }
}

/// Returns the ledgers as Markdown: `docs/claims.md`.
pub fn markdown<'l>(ledgers: impl Iterator<Item = &'l Ledger>) -> String {
    let mut page = INTRODUCTION.to_owned();
    for aspect in Aspect::ALL {
        let _ = writeln!(page, "| `{}` | {} |", aspect.word(), aspect.meaning());
    }
    for ledger in ledgers {
        let Ledger {
            study,
            source,
            testbed,
            claims,
        } = ledger;
        let _ = writeln!(page, "\n## `{study}`: {source}\n");
        let _ = writeln!(
            page,
            "{} claims. The study's hardware is `model:{testbed}`.\n",
            claims.len()
        );
        page += "| claim | where | statement | cells | holds if | about | found in |\n|---|---|---|---|---|---|---|\n";
        claims.iter().for_each(|claim| page += &row(claim));
    }
    page
}

fn row(claim: &Claim) -> String {
    let cause = claim.model.as_ref();
    let cause = cause.map(|cause| format!(" *Not in the model: {cause}.*"));
    let about = claim
        .about
        .iter()
        .map(|aspect| format!("`{}`", aspect.word()));
    format!(
        "| `{}` | {} | {} | {} | {} | {} | {} |\n",
        claim.id,
        claim.place(),
        claim.says.clone() + &cause.unwrap_or_default(),
        claim.cells,
        claim.holds_if.words(claim.value),
        about.collect::<Vec<_>>().join(", "),
        claim.found.clone().unwrap_or_else(|| claim.rows.join(", "))
    )
}
