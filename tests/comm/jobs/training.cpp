#include "comm/jobs/training.hpp"

#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "comm/jobs/event.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/data/data_loader.hpp"
#include "lockstep/data/sampler.hpp"
#include "lockstep/nn/distributed_data_parallel.hpp"
#include "lockstep/nn/nn.hpp"
#include "lockstep/optim/clip.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/parallel/divergence_check.hpp"
#include "lockstep/runtime/stream.hpp"
#include "lockstep/tensor/factories.hpp"
#include "lockstep/train/loop.hpp"
#include "lockstep/train/step_graph.hpp"

namespace lockstep::testing {
namespace {

using Replica = DistributedDataParallel<nn::Linear>;
constexpr int steps = 4;

nn::ModulePtr<nn::Linear> make_model(const Session& session) {
  auto model = nn::make<nn::Linear>(3, 2);
  model->to(session.device());
  return model;
}

Tensor loss_of(Replica& replica, const Session& session) {
  return sum(square(replica(full({2, 3}, 1.0 + session.rank(), {.device = session.device()}))));
}

int say_the_end(const Session& session, const nn::Linear& model) {
  std::printf("rank %d ends with %g\n", session.rank(), model.weight.detach().mean().item());
  return 0;
}

// One rank takes another learning rate from a step on.
int train_at_another_rate(Session& session, int culprit, int odd_step) {
  const auto model = make_model(session);
  Replica replica(model, session.world());
  optim::SGD optimizer(replica.named_parameters(), {.lr = 0.125});
  for (int step = 1; step <= steps; ++step) {
    loss_of(replica, session).backward();
    if (session.rank() == culprit && step == odd_step) optimizer.set_lr(0.25);
    optimizer.step();
    optimizer.zero_grad();
  }
  return say_the_end(session, *model);
}

// The same in the last step, by wrappers that nobody ends before the Session.
int train_for_ever(Session& session, int culprit) {
  static std::unique_ptr<Replica> kept;
  const auto model = make_model(session);
  kept = std::make_unique<Replica>(model, session.world());
  optim::SGD optimizer(kept->named_parameters(), {.lr = session.rank() == culprit ? 0.25 : 0.125});
  loss_of(*kept, session).backward();
  optimizer.step();
  return say_the_end(session, *model);
}

// One rank clips over the group, alone.
int clip_alone(Session& session, int culprit) {
  const auto model = make_model(session);
  Replica replica(model, session.world());
  for (int step = 1; step <= steps; ++step) {
    loss_of(replica, session).backward();
    if (session.rank() == culprit && step == 2)
      optim::clip_grad_norm_(model->parameters(), 1e-3, {.group = session.world()});
  }
  return say_the_end(session, *model);
}

// One rank leaves out a backward, long after the ranks have begun.
int skip_a_backward(Session& session, int culprit) {
  const auto model = make_model(session);
  Replica replica(model, session.world());
  for (int step = 1; step <= steps; ++step) {
    const Tensor loss = loss_of(replica, session);
    if (step == 2) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    if (session.rank() != culprit || step != 2) loss.backward();
  }
  return say_the_end(session, *model);
}

/// A model whose names do not fit into a signature.
struct Tower {
  nn::ModulePtr<nn::Sequential> layers;
  DistributedDataParallel<nn::Sequential> replica;
  optim::SGD optimizer;
  Tensor x;

  explicit Tower(const Session& session)
      : layers(on_device(session.device())),
        replica(layers, session.world()),
        optimizer(replica.named_parameters(), {.lr = 0.125}),
        x(full({2, 4}, 1.0, {.device = session.device()})) {}

  static nn::ModulePtr<nn::Sequential> on_device(Device device) {
    auto layers = nn::make<nn::Sequential>();
    for (int layer = 0; layer < 20; ++layer)
      layers->append("encoder_layer_" + std::to_string(layer), nn::make<nn::Linear>(4, 4));
    layers->to(device);
    return layers;
  }
  Tensor loss() { return mean(square(replica(x))); }
  void update(const Tensor& loss) {
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
  }
};

void hang(const Session& session) {
  synchronize(current_stream(session.device()));
  note_event();
  std::this_thread::sleep_for(std::chrono::seconds(60));
}

// One rank leaves out the rest of the third step, or hangs there.
int train_a_tower(Session& session, int culprit, bool hangs) {
  Tower tower(session);
  for (int step = 1; step <= steps; ++step) {
    const Tensor loss = tower.loss();
    const bool is_odd = session.rank() == culprit && step == 3;
    if (is_odd && hangs) hang(session);
    if (is_odd) {
      note_event();
      continue;
    }
    tower.update(loss);
  }
  session.world()->barrier().synchronize();
  return 0;
}

// One rank hangs between launches of a captured step.
int replay_a_tower(Session& session, int culprit) {
  Tower tower(session);
  StepGraph graph(
      [&](std::span<const Tensor>) -> std::vector<Tensor> {
        const Tensor loss = tower.loss();
        tower.update(loss);
        return {loss};
      },
      {.num_warmup_iters = 2, .group = session.world()});
  for (int step = 1; step <= 6; ++step) {
    if (session.rank() == culprit && step == 6) hang(session);
    graph({tower.x});
  }
  session.world()->barrier().synchronize();
  return 0;
}

// One rank takes its time: twenty times the others', and more.
int train_slowly(Session& session, int culprit) {
  const auto model = make_model(session);
  Replica replica(model, session.world());
  for (int step = 1; step <= 5 * steps; ++step) {
    if (session.rank() == culprit) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    loss_of(replica, session).backward();
  }
  const parallel::StragglerReport report = replica.stragglers();
  if (session.rank() == 0) {
    std::ostringstream text;
    text << report;
    std::printf("%s", text.str().c_str());
  }
  return say_the_end(session, *model);
}

// One rank's model is another one than the others'.
int wrap_another_model(Session& session, int culprit, const nn::LinearOptions& other) {
  const bool is_other = session.rank() == culprit;
  const auto model =
      nn::make<nn::Linear>(is_other ? other : nn::LinearOptions{.in = 3, .out = 2, .bias = false});
  model->to(session.device());
  if (is_other) note_event();
  const Replica replica(model, session.world());
  return say_the_end(session, *model);
}

// One rank reduces its gradients in more buckets than the others.
int plan_other_buckets(Session& session, int culprit) {
  const auto model = make_model(session);
  const bool is_other = session.rank() == culprit;
  const std::size_t bytes = is_other ? 4 : 1 << 20;
  if (is_other) note_event();
  Replica replica(model, session.world(), {.bucket_bytes = bytes, .first_bucket_bytes = bytes});
  for (int step = 1; step <= steps; ++step) loss_of(replica, session).backward();
  return say_the_end(session, *model);
}

// One rank's weights lose a bit, as in bad memory.
void flip_a_bit(Tensor weights) {
  const Tensor on_host = weights.to(cpu);
  float& last = on_host.data<float>()[on_host.numel() - 1];
  last = std::bit_cast<float>(std::bit_cast<std::uint32_t>(last) ^ 1U);
  weights.copy_(on_host);
}

int train_with_a_flipped_bit(Session& session, int culprit) {
  const auto model = make_model(session);
  Replica replica(model, session.world());
  optim::SGD optimizer(replica.named_parameters(), {.lr = 1e-3});
  parallel::DivergenceCheck check(model->named_parameters(), session.world(), {.every = 2});
  for (int step = 1; step <= 1000; ++step) {
    loss_of(replica, session).backward();
    optimizer.step();
    optimizer.zero_grad();
    if (session.rank() == culprit && step == 3) {
      note_event();
      flip_a_bit(model->weight.detach());
    }
    check.step();
  }
  return say_the_end(session, *model);
}

struct BadRecord : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Numbers, of which some cannot be read.
struct Numbers {
  std::int64_t first_bad;
  std::int64_t size() const { return 40; }
  Tensor fetch(std::span<const std::int64_t> indices) const {
    for (const std::int64_t index : indices)
      if (index >= first_bad) throw BadRecord("record 7 is cut short");
    return full({static_cast<std::int64_t>(indices.size()), 3}, 1.0);
  }
};

// One rank's data set throws, in a worker of its loader. Who catches that finds it as it is.
int meet_a_bad_sample(Session& session, int culprit) {
  const auto model = make_model(session);
  Replica replica(model, session.world());
  optim::SGD optimizer(replica.named_parameters(), {.lr = 0.125});
  data::DataLoader loader(Numbers{session.rank() == culprit ? 12 : 40}, data::SequentialSampler(40),
                          {.batch_size = 4,
                           .rank = session.rank(),
                           .world_size = session.size(),
                           .num_workers = 2,
                           .device = session.device()});
  train::Loop loop(session, {.epochs = 1});
  try {
    return loop.run(loader, [&](const Tensor& batch) {
      const Tensor loss = sum(square(replica(batch)));
      loss.backward();
      optimizer.step();
      optimizer.zero_grad();
      return loss;
    });
  } catch (const BadRecord&) {
    throw;
  }
}

// All ranks wrap the model anew after every other update.
int wrap_again_and_again(Session& session) {
  const auto model = make_model(session);
  optim::SGD optimizer(model->named_parameters(), {.lr = 0.125});
  for (int step = 1; step <= steps; ++step) {
    const auto replica = std::make_unique<Replica>(model, session.world());
    for (int part = 0; part < 2; ++part) {
      loss_of(*replica, session).backward();
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  return say_the_end(session, *model);
}

}  // namespace

std::map<std::string, std::function<int(Session&, int culprit)>> training_modes() {
  return {{"other-rate", [](Session& s, int c) { return train_at_another_rate(s, c, 2); }},
          {"other-last-rate", [](Session& s, int c) { return train_at_another_rate(s, c, steps); }},
          {"other-rate-for-ever", train_for_ever},
          {"clip-alone", clip_alone},
          {"other-shape",
           [](Session& s, int c) {
             return wrap_another_model(s, c, {.in = 2, .out = 3, .bias = false});
           }},
          {"other-parameter-dtype",
           [](Session& s, int c) {
             return wrap_another_model(
                 s, c, {.in = 3, .out = 2, .bias = false, .tensor = {.dtype = DType::f64}});
           }},
          {"other-plan", plan_other_buckets},
          {"flipped-bit", train_with_a_flipped_bit},
          {"skip-backward", skip_a_backward},
          {"slow-training", train_slowly},
          {"hang-in-tower", [](Session& s, int c) { return train_a_tower(s, c, true); }},
          {"hang-in-captured-tower", replay_a_tower},
          {"skip-step-of-tower", [](Session& s, int c) { return train_a_tower(s, c, false); }},
          {"bad-sample", meet_a_bad_sample},
          {"wrap-again", [](Session& s, int) { return wrap_again_and_again(s); }}};
}

}  // namespace lockstep::testing
