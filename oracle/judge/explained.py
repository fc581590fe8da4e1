"""Of every check: by which formula it decides, and what it cannot see."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """formula: the decision rule. blind: faults that pass, however often the check is run."""

    formula: str
    blind: str


EXPLAINED: dict[str, Words] = {
    "path": Words(
        "replays counted by the subject rise by one a block, and poison written into every output "
        "before the replay is gone after it",
        "a subject that misreports its path and rewrites its outputs all the same",
    ),
    "bounds": Words(
        "0 <= token < V in every row, with padding, masks, NaN and empty rows planted",
        "a wrong token that is a real id",
    ),
    "spike": Words(
        "every id in turn leads by 128 temperatures; no noise of either dialect overcomes 95",
        "any law that is wrong by less than a lost, added or displaced id",
    ),
    "gates": Words(
        "fold and reason equal the reference's table, one change at a time from an open gate",
        "a gate that answers rightly and is not obeyed; `path` sees that",
    ),
    "freshness": Words(
        "one field is changed between two loads, also in place; tokens that the old value explains "
        "and the new one does not are stale; two replays agree by chance less than 1e-9. In a "
        "chain of loads that all differ, the earlier value under which the reference agrees with "
        "every row is the one that was used, and gives the age in replays",
        "a field that is stale and equal; fields that are late by different ages; an age beyond "
        "12 blocks; the context of a draft model, but for hidden states that stay",
    ),
    "writeset": Words(
        "two poisons in turn in every buffer: what differs between the two runs was read before it "
        "was written; pads equal their neutral value, addresses stay; a pad that does not is "
        "compared with what its rows held after each earlier block, which gives its age",
        "memory that the subject does not list as a buffer",
    ),
    "retention": Words(
        "results are compared with their copies after later replays, bit for bit",
        "results that a consumer changes",
    ),
    "equality": Words(
        "the float64 race on the same noise gives the same id, or the two keys lie within the sum "
        "of their rounding bounds; race noise on CUDA is that which Philox gives for the "
        "generator's seed and offset before the block",
        "the law of the noise, its independence, a fault among near ties",
    ),
    "invariance": Words(
        "the same request alone, in company and in a larger bucket: equal bits of logits, and "
        "equal tokens where its noise is the same",
        "a fault that all buckets share",
    ),
    "ranks": Words(
        "every rank's outputs equal rank 0's bit for bit, each is coupled with the unsharded "
        "reference, and gates answer for the least free memory of the group",
        "one process: it needs torchrun",
    ),
    "coupled": Words(
        "as equality, over n draws: no illegal mismatch means fewer than ln(100) / n wrong draws "
        "(99 %); near ties against Binomial(n, sum p_i s (1 - p_i) / (1 + s (1 - p_i)))",
        "the law of the noise, its independence, logits that both sides misread alike",
    ),
    "confidence": Words(
        "sigmoid(raw / scaling) from anchor, drafted tokens and hidden states, within its rounding",
        "whether the confidence is of any use",
    ),
    "accept_rule": Words(
        "the reference's rule on the subject's own coins: u q < p accepts, the residual "
        "max(p - q, 0) or the bonus row is drawn by inversion",
        "coins that are no uniforms, or that draft and accept share",
    ),
    "noise_law": Words(
        "coarsest grid of F = 1 - exp(-E), equal pairs, mean and octaves of the noise itself; the "
        "count of equal rare ids against the exact binomial",
        "noise that is right and shared; a floor below the one that is stated",
    ),
    "independence": Words(
        "equal pairs of draws on uniform logits against Binomial(pairs, 1 / V), upper tail",
        "noise that is shared in a way that no listed kind of pair meets; repulsion",
    ),
    "draft_law": Words(
        "mean likelihood ratio of known faults below 1 / a; exact binomials on dyadic intervals; "
        "G or Pearson over pools that expect 50 draws, 1e-3 then 1e-6 on fresh draws; draws that "
        "the sampler counts itself alike, pairs of rows and of replays against products of laws",
        "small shifts inside a pool that no listed fault resembles; a row that reads its "
        "neighbour's previous token; counts that are wrong in few of 32 calls, since four of them "
        "are made again and counted by the judge",
    ),
    "claim": Words(
        "U = F(x-) + W p(x) under the exported law is uniform: G over 64 bins in two orders",
        "an exported law and a draw that are wrong alike; errors inside a bin",
    ),
    "lossless": Words(
        "y_k given y_<k on completed commits: as draft_law",
        "how many drafts are accepted; shifts inside a pool",
    ),
    "block_law": Words(
        "8 ids: likelihood ratios of a stale or foreign previous token, exact binomials on every "
        "table. 1,024 ids, or those of a real model: likelihood ratios add up draw by draw along "
        "the reference's walk; U = F(x-) + W p(x) in two orders, 4,096 bins by exact binomials, "
        "G over 64 bins and over pairs of consecutive steps, 1e-3 then 1e-6 on fresh draws",
        "a fault that keeps the law of each block given its own row; at many ids, shifts that move "
        "as much into a bin of U as out of it; on a real model, gated and recurrent heads",
    ),
    "accept_length": Words(
        "a chain goes on past k with probability sum min(p_k, q_k), a block rule as enumerated: "
        "exact binomials, two-sided",
        "which token is committed; `lossless` sees that",
    ),
    "decode_gates": Words(
        "fold and reason of each block and accept equal the reference's table for the rows, the "
        "buckets and the engine of that step",
        "a step that says that it folded and did not; `verify --check path` sees that",
    ),
    "decode_identity": Words(
        "a greedy token lies no further below the best logit of another reading of the text than "
        "two float32 readings can differ; texts equal plain decoding up to the first near tie",
        "an error of the model that both readings share",
    ),
    "decode_accept": Words(
        "u q < p accepts, and the final draw is the id whose interval of the residual, or of the "
        "bonus row, holds the uniform: in float64, on exported logits and coins",
        "logits that are stale or another row's, but exported as used; the block rule",
    ),
    "decode_drafts": Words(
        "a draft is kept with probability sum min(p, q); bets on odds off by factors of 1.1 to 5, "
        "either way, multiply up over the drafts, and stay below 1 / alarm at every moment",
        "drafts that follow another law with the same overlap",
    ),
    "decode_law": Words(
        "mean of likelihood ratios of known faults against the model's own law, token by token, "
        "below 1 / alarm at every moment; a token of probability 0 is a violation by itself",
        "a law that is off by less than the stated effect, and faults unlike those it bets on",
    ),
}
