// Records what a step of training allocates: the history of the pool from before the model is made
// over three steps, as a snapshot that scripts/pool_trace.py makes a trace of.
//
//     benchmark_record_allocations gpt2 gpt2.json       (124 million parameters, 1 x 1024 tokens)
//     benchmark_record_allocations resnet50 resnet50.json         (8 images of 224 x 224, SGD)

#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>

#include <lockstep/lockstep.hpp>

#include "support/device.hpp"

namespace ls = lockstep;
using ls::Tensor;

namespace {

std::function<void()> gpt2_step() {
  auto model = ls::models::gpt2({});
  auto optimizer = std::make_shared<ls::optim::AdamW>(model->named_parameters(),
                                                      ls::optim::AdamWOptions{.lr = 1e-4});
  return [model, optimizer] {
    const Tensor tokens = ls::randint(0, 50257, {1, 1025}, {.dtype = ls::DType::i64});
    const Tensor logits = model(tokens.slice(1, 0, 1024));
    const Tensor targets = tokens.slice(1, 1, 1025).reshape({-1});
    ls::cross_entropy(logits.reshape({-1, 50257}), targets).backward();
    optimizer->step();
    optimizer->zero_grad();
  };
}

std::function<void()> resnet50_step() {
  auto model = ls::models::resnet50();
  auto optimizer = std::make_shared<ls::optim::SGD>(
      model->named_parameters(), ls::optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
  return [model, optimizer] {
    const Tensor images = ls::randn({8, 3, 224, 224});
    const Tensor labels = ls::randint(0, 1000, {8}, {.dtype = ls::DType::i64});
    ls::cross_entropy(model(images), labels).backward();
    optimizer->step();
    optimizer->zero_grad();
  };
}

}  // namespace

int main(int argc, char** argv) {
  const ls::benchmark::Report report("record_allocations", argc, argv);
  if (ls::benchmark::has_no_gpu_case(report, argc, argv, "it records the host's pool")) return 0;
  const bool gpt2 = argc == 3 && std::strcmp(argv[1], "gpt2") == 0;
  if (!gpt2 && (argc != 3 || std::strcmp(argv[1], "resnet50") != 0)) {
    std::fprintf(stderr, "usage: %s gpt2|resnet50 SNAPSHOT\n", argv[0]);
    return 2;
  }
  ls::record_memory_history(ls::cpu);
  const auto step = gpt2 ? gpt2_step() : resnet50_step();
  for (int i = 0; i < 3; ++i) step();
  ls::dump_memory_snapshot(ls::cpu, argv[2]);
}
