/* Runs draftproof vectors in plain C99: words, uniforms, choice, admission, accept. Reads on stdin
   "case OPERATION ID", then "in|out NAME COUNT ELEMENTS" (hexadecimal words, or one word of text),
   then "end"; prints "ok ID" or "bad ID NAME". Double arithmetic throughout. */
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
enum { FIELDS = 24, SIZE = 4096 };
typedef struct { char side[4], name[24], text[24]; int n; uint64_t v[SIZE]; } Field;
static Field held[FIELDS];
static int fields, bad;
static char id[128];
static Field *get(const char *side, const char *name) {
  for (int i = 0; i < fields; i++)
    if (!strcmp(held[i].side, side) && !strcmp(held[i].name, name)) return &held[i];
  fprintf(stderr, "%s has no %s %s\n", id, side, name);
  exit(2);
}
static uint64_t word(const char *name, int i) { return get("in", name)->v[i]; }
static double as_float(uint64_t bits) { uint32_t w = (uint32_t)bits; float f; memcpy(&f, &w, 4); return f; }
static double real(const char *name, int i) { return as_float(word(name, i)); }
static uint64_t bits_of(double x) { float f = (float)x; uint32_t w; memcpy(&w, &f, 4); return w; }
static void check(const char *name, int i, uint64_t found) {
  if (get("out", name)->v[i] != found && !bad) bad = printf("bad %s %s\n", id, name);
}
static void philox(const uint32_t c[4], uint32_t k0, uint32_t k1, uint32_t out[4]) {
  memcpy(out, c, 16);
  for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    uint64_t a = (uint64_t)0xD2511F53u * out[0], b = (uint64_t)0xCD9E8D57u * out[2];
    uint32_t x1 = out[1], x3 = out[3];
    out[0] = (uint32_t)(b >> 32) ^ x1 ^ k0; out[1] = (uint32_t)b;
    out[2] = (uint32_t)(a >> 32) ^ x3 ^ k1; out[3] = (uint32_t)a;
  }
}
static double uniform(uint32_t w) {
  double u = (float)((w + 0.5) * 0x1p-32), top = 1 - 0x1p-24;
  return u < top ? u : top;
}
static void placed(int count, uint64_t seed, uint32_t step) {
  for (int i = 0; i < count; i++) {
    uint32_t c[4] = {(uint32_t)i / 4, (uint32_t)word("row", 0), step, (uint32_t)word("block", 0)}, o[4];
    philox(c, (uint32_t)seed, (uint32_t)(seed >> 32), o);
    check("words", i, o[i % 4]);
    check("uniform", i, bits_of(uniform(o[i % 4])));
  }
}
static int best(const double *x, int n) { /* the first NaN, else the lowest id of the largest */
  int found = 0;
  for (int i = 0; i < n; i++) { if (isnan(x[i])) return i; if (x[i] > x[found]) found = i; }
  return found;
}
static void choose(void) {
  int rows = get("in", "greedy")->n, V = get("in", "logits")->n / rows;
  int race = !strcmp(get("in", "dialect")->text, "race");
  for (int b = 0; b < rows; b++) {
    double l[SIZE] = {0}, key[SIZE] = {0}, T = real("temperature", b), sum = 0;
    for (int i = 0; i < V; i++) l[i] = real("logits", b * V + i);
    double top = l[best(l, V)];
    for (int i = 0; i < V; i++) sum += exp((l[i] - top) / T);
    for (int i = 0; i < V; i++) {
      double E = real("noise", b * V + i);
      key[i] = race ? exp((l[i] - top) / T) / sum / E : l[i] / T - log(E);
    }
    check("tokens", b, (uint64_t)best(word("greedy", b) || !isfinite(top) ? l : key, V));
    check("flags", b, isnan(top) ? 1 : top == -INFINITY ? 2 : 0);
  }
}
static void commit(int b, int K, const uint64_t *tokens, int accepted, uint64_t bonus, int broken) {
  int V = (int)word("verify_len", b), cap = V > 0 ? V - 1 : 0, n = accepted < cap ? accepted : cap;
  int none = V == 0 || broken;
  if (accepted > cap) bonus = tokens[cap];
  check("correct_len", b, none ? 0 : n); check("trim", b, none ? 0 : accepted - n);
  check("bonus", b, none ? UINT64_MAX : bonus); check("commit_len", b, none ? 0 : n + 1);
  check("new_seq_len", b, word("prefix_len", b) + (none ? 0 : n + 1)); check("flags", b, V > 0 && broken);
  for (int t = 0; t <= K; t++)
    check("out_tokens", b * (K + 1) + t, none || t > n ? UINT64_MAX : t == n ? bonus : tokens[t]);
}
static void accept(void) {
  int rows = get("in", "verify_len")->n, K = get("in", "tokens")->n / rows;
  int V = get("in", "p")->n / rows / (K + 1), block = !strcmp(get("in", "rule")->text, "block");
  for (int b = 0; b < rows; b++) {
    double p[64][64], q[64][64] = {{0}}, r[64] = {1}, spare[64] = {0};
    int n = 0, broken = 0, open = 1;
    for (int t = 0; t <= K; t++) {
      open = open && !(t < K && word("marks", b * K + t));
      for (int v = 0; v < V; v++) {
        p[t][v] = real("p", (b * (K + 1) + t) * V + v);
        if (t < K && open) q[t][v] = real("q", (b * K + t) * V + v);
      }
    }
    uint64_t *x = get("in", "tokens")->v + b * K;
    for (int t = 0; t < K; t++) {
      double P = p[t][x[t]], Q = q[t][x[t]];
      if (block) r[t + 1] = Q > 0 ? fmin(r[t] * P / Q, 1) : 0;
      else { r[t + 1] = 1; if (n == t && Q > 0 && real("coins", b * (K + 1) + t) * Q < P) n = t + 1; }
    }
    for (int t = 0; t <= K; t++) for (int v = 0; v < V; v++) spare[t] += fmax(r[t] * p[t][v] - q[t][v], 0);
    for (int t = 1; block && t <= K; t++) {
      double coin = real("coins", b * (K + 1) + t - 1), h = r[t] > 0 && r[t] < 1 ? spare[t] / (spare[t] + 1 - r[t]) : r[t];
      if (coin < r[t] && coin < h) n = t;
    }
    for (int t = 0; t <= n; t++) for (int v = 0; v < V; v++) broken |= isnan(p[t][v]);
    double total = 0, run = 0, mass[64], u = real("coins", b * (K + 1) + K);
    int last = 0, found = -1;
    for (int v = 0; v < V; v++) total += mass[v] = spare[n] > 0 ? fmax(r[n] * p[n][v] - q[n][v], 0) : p[n][v];
    for (int v = 0; v < V; v++) {
      run += mass[v];
      if (mass[v] > 0) { last = v; if (found < 0 && run > u * total) found = v; }
    }
    commit(b, K, x, n, (uint64_t)(found < 0 ? last : found), broken);
  }
}
static void accept_greedy(void) {
  int rows = get("in", "verify_len")->n, K = get("in", "candidates")->n / rows - 1, n = 0, broken = 0;
  int V = get("in", "logits")->n / rows / (K + 1), bonus[64];
  for (int b = 0; b < rows; b++, n = 0, broken = 0) {
    uint64_t *x = get("in", "candidates")->v + b * (K + 1) + 1;
    int cap = (int)word("verify_len", b) - 1;
    for (int t = 0; t <= K; t++) {
      double l[SIZE] = {0};
      for (int v = 0; v < V; v++) l[v] = real("logits", (b * (K + 1) + t) * V + v);
      bonus[t] = best(l, V);
      if (t <= n && (t <= cap || t == 0)) broken |= isnan(l[bonus[t]]);
      if (t < K && n == t && x[t] == (uint64_t)bonus[t]) n = t + 1;
    }
    commit(b, K, x, n, (uint64_t)bonus[n], broken);
  }
}
static int run(const char *what) {
  if (!strcmp(what, "philox")) {
    uint32_t c[4], o[4];
    for (int i = 0; i < 4; i++) c[i] = (uint32_t)word("counter", i);
    philox(c, (uint32_t)word("key", 0), (uint32_t)word("key", 1), o);
    for (int i = 0; i < 4; i++) check("words", i, o[i]);
  } else if (!strcmp(what, "uniform")) check("uniform", 0, bits_of(uniform((uint32_t)word("word", 0))));
  else if (!strcmp(what, "noise_words")) placed((int)word("vocabulary", 0), word("seed", 0), (uint32_t)word("step", 0));
  else if (!strcmp(what, "coin_words")) placed((int)word("drafts", 0) + 1, word("seed", 0) ^ 0x9E3779B97F4A7C15u, 0);
  else if (!strcmp(what, "choose")) choose();
  else if (!strcmp(what, "accept")) accept();
  else if (!strcmp(what, "accept_greedy")) accept_greedy();
  else return 2;
  return 0;
}
int main(void) {
  char side[8], what[32] = "";
  while (scanf("%7s", side) == 1) {
    if (!strcmp(side, "case")) { if (scanf("%31s %127s", what, id) != 2) return 3; fields = bad = 0; continue; }
    if (!strcmp(side, "end")) { if (run(what)) return 2; if (!bad) printf("ok %s\n", id); continue; }
    Field *f = &held[fields++];
    if (fields > FIELDS || scanf("%23s %d", f->name, &f->n) != 2 || f->n > SIZE) return 3;
    strcpy(f->side, side);
    if (f->n < 0) { if (scanf("%23s", f->text) != 1) return 3; continue; }
    for (int i = 0; i < f->n; i++) if (scanf("%" SCNx64, &f->v[i]) != 1) return 3;
  }
  return 0;
}
