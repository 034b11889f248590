// Training steps of llm.c's train_gpt2.c on request; llmc_train_step.py compiles it beside a checkout.
//
//     llmc_train_step CHECKPOINT TOKENS BATCH TIME
//
// TOKENS: BATCH rows of TIME + 1 numbers of 32 bits. Prints "ready", then for each line of standard
// input the seconds and the loss of a step as one JSON object.

#define TESTING
#include "train_gpt2.c"

#include <time.h>

static double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  FILE* const answers = fdopen(dup(1), "w");
  if (!answers || !freopen("/dev/null", "w", stdout)) return 2;  // what the model prints of itself
  GPT2 model;
  gpt2_build_from_checkpoint(&model, argv[1]);
  const size_t batch = strtoul(argv[3], NULL, 10), time = strtoul(argv[4], NULL, 10);
  int* const row = mallocCheck((time + 1) * sizeof(int));
  int* const inputs = mallocCheck(batch * time * sizeof(int));
  int* const targets = mallocCheck(batch * time * sizeof(int));
  FILE* const tokens = fopenCheck(argv[2], "rb");
  for (size_t i = 0; i < batch; ++i) {
    freadCheck(row, sizeof(int), time + 1, tokens);
    memcpy(inputs + i * time, row, time * sizeof(int));
    memcpy(targets + i * time, row + 1, time * sizeof(int));
  }
  fprintf(answers, "ready\n");
  fflush(answers);
  char line[64];
  for (int step = 1; fgets(line, sizeof line, stdin); ++step) {
    const double start = seconds_now();
    gpt2_forward(&model, inputs, targets, batch, time);
    gpt2_zero_grad(&model);
    gpt2_backward(&model);
    gpt2_update(&model, 1e-4f, 0.9f, 0.999f, 1e-8f, 0.01f, step);
    fprintf(answers, "{\"seconds\": %.9f, \"loss\": %.9g}\n", seconds_now() - start, model.mean_loss);
    fflush(answers);
  }
  return 0;
}
