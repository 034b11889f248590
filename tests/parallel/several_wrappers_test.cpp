// Several wrapped models in one backward, and ranks whose micro-batches differ in number: gradients
// are those of one process on all data, or refused.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/thread_job.hpp"
#include "lockstep/lockstep.hpp"
#include "parallel/replicas.hpp"
#include "support/refusal.hpp"

namespace lockstep::parallel {
namespace {

using lockstep::testing::refusal;
using lockstep::testing::run_job;
using testing::expect_close;
using testing::gradients_of;
using ::testing::HasSubstr;

using CoderLayer = DistributedDataParallel<nn::Linear>;

nn::ModulePtr<nn::Linear> coder_layer(std::uint64_t seed, std::int64_t in, std::int64_t out) {
  manual_seed(seed);
  return nn::make<nn::Linear>(
      nn::LinearOptions{.in = in, .out = out, .tensor = {.dtype = DType::f64}});
}

Tensor coder_rows(int seed, std::int64_t count) {
  Generator generator(static_cast<std::uint64_t>(seed));
  return randn({count, 4}, {.dtype = DType::f64}, generator);
}

/// An encoder and a decoder, wrapped apart or not at all.
struct Coder {
  nn::ModulePtr<nn::Linear> encoder = coder_layer(1, 4, 5), decoder = coder_layer(2, 5, 3);
  std::optional<CoderLayer> first, second;

  void wrap(const CommunicatorPtr& group, const DistributedDataParallelOptions& options = {}) {
    first.emplace(encoder, group, options);
    second.emplace(decoder, group, options);
  }
  Tensor code(const Tensor& x) { return tanh(first ? (*first)(x) : encoder(x)); }
  Tensor loss(const Tensor& x, bool decodes = true) {
    const Tensor y = decodes ? (second ? (*second)(code(x)) : decoder(code(x))) : code(x);
    return mean(square(y - 0.3));
  }
  std::vector<double> gradients() const {
    std::vector<double> all = gradients_of(*encoder);
    for (const double each : gradients_of(*decoder)) all.push_back(each);
    return all;
  }
};

TEST(WeightsOfSeveralWrappers, CountForAllThatTheLossGoesThrough) {
  Coder alone;
  mean(square(cat({alone.decoder(tanh(alone.encoder(coder_rows(0, 2)))),
                   alone.decoder(tanh(alone.encoder(coder_rows(10, 3)))),
                   alone.decoder(tanh(alone.encoder(coder_rows(1, 4)))),
                   alone.decoder(tanh(alone.encoder(coder_rows(11, 1))))},
                  0) -
              0.3))
      .backward();
  for (const bool by_first : {false, true})
    run_job(2, [&](const CommunicatorPtr& group) {
      Coder coder;
      coder.wrap(group);
      for (int step = 0; step < 3; ++step) {
        const auto backward = [&](const Tensor& x) {
          const Tensor loss = coder.loss(x);
          by_first ? coder.first->backward(loss, static_cast<double>(x.size(0)))
                   : coder.second->backward(loss, static_cast<double>(x.size(0)));
        };
        {
          const auto a = coder.first->no_sync();
          const auto b = coder.second->no_sync();
          backward(coder_rows(group->rank(), group->rank() == 0 ? 2 : 4));
        }
        backward(coder_rows(10 + group->rank(), group->rank() == 0 ? 3 : 1));
        expect_close(coder.gradients(), alone.gradients(), 1e-12, 1e-14);
        coder.encoder->zero_grad();
        coder.decoder->zero_grad();
      }
    });
}

// The first micro-batch goes through the decoder alone, or through the encoder alone.
TEST(WeightsOfSeveralWrappers, AreRefusedWhereTheyCountOtherMicroBatches) {
  run_job(1, [&](const CommunicatorPtr& group) {
    Coder coder;
    coder.wrap(group);
    {
      const auto b = coder.second->no_sync();
      coder.second->backward(mean((*coder.second)(ones({2, 5}, {.dtype = DType::f64}))), 2);
    }
    coder.second->backward(coder.loss(coder_rows(0, 2)), 2);  // the encoder has no other
    coder.encoder->zero_grad();
    coder.decoder->zero_grad();
    {
      const auto a = coder.first->no_sync();
      coder.first->backward(coder.loss(coder_rows(0, 2), false), 2);
    }
    EXPECT_THAT(refusal([&] { coder.second->backward(coder.loss(coder_rows(0, 2)), 2); }),
                HasSubstr("other micro-batches"));
  });
}

TEST(WeightsOfSeveralWrappers, AreRefusedWhereTheOtherOneReduces) {
  run_job(1, [&](const CommunicatorPtr& group) {
    Coder coder;
    coder.wrap(group);
    const auto a = coder.first->no_sync();
    EXPECT_THAT(refusal([&] { coder.first->backward(coder.loss(coder_rows(0, 2)), 2); }),
                HasSubstr("under no_sync()"));
  });
}

// The weight counts for the one that reduces alone, and the other says so.
TEST(WeightsOfSeveralWrappers, AreRefusedWhereOneStaysUnderNoSync) {
  run_job(1, [&](const CommunicatorPtr& group) {
    Coder coder;
    coder.wrap(group);
    const auto b = coder.second->no_sync();
    {
      const auto a = coder.first->no_sync();
      coder.first->backward(coder.loss(coder_rows(0, 2)), 2);
    }
    EXPECT_THAT(refusal([&] { coder.first->backward(coder.loss(coder_rows(1, 2)), 2); }),
                HasSubstr("has its weight through another DistributedDataParallel"));
  });
}

// As a generator's step goes through a discriminator, whose gradients are dropped.
TEST(WeightsOfSeveralWrappers, LeaveThoseAloneThatOnlyAddUp) {
  Coder alone;
  ((alone.loss(coder_rows(0, 2)) * 2.0 + alone.loss(coder_rows(1, 4)) * 4.0) / 6.0).backward();
  run_job(2, [&](const CommunicatorPtr& group) {
    Coder coder;
    coder.wrap(group);
    for (int step = 0; step < 2; ++step) {
      const int rank = group->rank();
      {
        const auto b = coder.second->no_sync();
        coder.first->backward(coder.loss(coder_rows(rank, 2 + 2 * rank)), 2.0 + 2 * rank);
      }
      expect_close(gradients_of(*coder.encoder), gradients_of(*alone.encoder), 1e-12, 1e-14);
      coder.encoder->zero_grad();
      coder.decoder->zero_grad();
      coder.second->backward(mean((*coder.second)(ones({2, 5}, {.dtype = DType::f64}))), 2);
      coder.decoder->zero_grad();
    }
  });
}

// A hook's own backward, through another model, has no part in it.
TEST(WeightsOfSeveralWrappers, LeaveBackwardsInsideOfThemAlone) {
  const auto gradient_of = [](const CommunicatorPtr& group, bool in_hook) {
    Coder coder;
    coder.wrap(group);
    const auto inner = coder_layer(3, 4, 2);
    CoderLayer other(inner, group);
    std::vector<double> found;
    const auto run = [&] {
      inner->zero_grad();
      mean(square(other(coder_rows(5 + group->rank(), 2)))).backward();
      found = gradients_of(*inner);
    };
    if (in_hook)
      coder.encoder->weight.register_hook([&](const Tensor& gradient) {
        const GradModeGuard recording(true);
        run();
        return gradient;
      });
    else
      run();
    {
      const auto a = coder.first->no_sync();
      coder.first->backward(mean((*coder.first)(coder_rows(0, 2))), 3.0 + group->rank());
    }
    coder.first->backward(mean((*coder.first)(coder_rows(1, 2))), 2);
    return found;
  };
  run_job(2, [&](const CommunicatorPtr& group) {
    EXPECT_EQ(gradient_of(group, true), gradient_of(group, false));
  });
}

TEST(WeightsOfSeveralWrappers, AreRefusedOfOneThatTheLossDoesNotGoThrough) {
  run_job(1, [&](const CommunicatorPtr& group) {
    Coder coder;
    coder.wrap(group);
    EXPECT_THAT(refusal([&] { coder.second->backward(coder.loss(coder_rows(0, 2), false), 2); }),
                HasSubstr("does not go through"));
  });
}

TEST(WeightsOfSeveralWrappers, GoOnFromACheckpointBetweenMicroBatches) {
  run_job(1, [&](const CommunicatorPtr& group) {
    const lockstep::testing::TemporaryFolder folder;
    const auto begin = [&](Coder& coder) {
      const auto a = coder.first->no_sync();
      const auto b = coder.second->no_sync();
      coder.second->backward(coder.loss(coder_rows(0, 2)), 2);
    };
    const auto manager = [&](Coder& coder) {
      auto checkpoints = std::make_unique<checkpoint::Manager>(folder.path(), group);
      checkpoints->add("encoder", *coder.first);
      checkpoints->add("decoder", *coder.second);
      return checkpoints;
    };
    Coder whole, resumed;
    whole.wrap(group);
    begin(whole);
    {
      const auto checkpoints = manager(whole);
      checkpoints->save(1);
      ASSERT_TRUE(checkpoints->wait()) << checkpoints->error();
    }
    resumed.wrap(group);
    manager(resumed)->load_newest();
    for (Coder* each : {&whole, &resumed}) each->second->backward(each->loss(coder_rows(1, 3)), 3);
    EXPECT_EQ(whole.gradients(), resumed.gradients());
  });
}

// Its mean is over all rows, also of those that use nothing.
TEST(WeightsOfMicroBatches, CountWhereNoParameterIsUsed) {
  run_job(1, [&](const CommunicatorPtr& group) {
    const auto net = coder_layer(1, 4, 3), alone = coder_layer(1, 4, 3);
    CoderLayer ddp(net, group);
    {
      const auto local = ddp.no_sync();
      const Tensor constant = ones({}, {.dtype = DType::f64}).set_requires_grad();
      ddp.backward(constant * 2.0, 6);
    }
    ddp.backward(mean(ddp(coder_rows(0, 2))), 2);
    (mean(alone(coder_rows(0, 2))) * 0.25).backward();
    expect_close(gradients_of(*net), gradients_of(*alone), 1e-12, 1e-14);
    net->zero_grad();
    ddp.backward(mean(ddp(coder_rows(0, 2))), 2);  // the next step's count by themselves
    alone->zero_grad();
    mean(alone(coder_rows(0, 2))).backward();
    expect_close(gradients_of(*net), gradients_of(*alone), 1e-12, 1e-14);
    net->zero_grad();
    {
      const auto local = ddp.no_sync();
      ddp.backward(ones({}, {.dtype = DType::f64}).set_requires_grad() * 2.0, 6);
    }
    net->zero_grad();  // the step is dropped
    ddp.backward(mean(ddp(coder_rows(0, 2))), 2);
    expect_close(gradients_of(*net), gradients_of(*alone), 1e-12, 1e-14);
  });
}

// Rank 0 alone has a micro-batch more; the last one of each exchanges what it computes.
TEST(WeightsOfMicroBatches, AreThoseOfExchangedGradientsWhereOneRankHasMore) {
  const std::vector<double> weights{4, 1, 3};
  for (const DType dtype : {DType::f64, DType::bf16}) {
    const auto make = [&] {
      manual_seed(1);
      return nn::make<nn::Linear>(nn::LinearOptions{.in = 4, .out = 3, .tensor = {.dtype = dtype}});
    };
    const auto loss_of = [](const Tensor& y, int rank) {
      return mean(square(y * (1.0 + rank) - 0.2)).to(DType::f32);
    };
    const auto alone = make();
    const Tensor both =
        cat({alone(coder_rows(1, 2).to(dtype)), alone(coder_rows(2, 2).to(dtype))}, 0);
    ((loss_of(alone(coder_rows(0, 2).to(dtype)), 0) * weights[0] + loss_of(both, 0) * weights[1] +
      loss_of(both, 1) * weights[2]) /
     (weights[0] + weights[1] + weights[2]))
        .backward();
    for (const bool all_accumulate : {false, true})
      run_job(2, [&](const CommunicatorPtr& group) {
        const int rank = group->rank();
        const auto net = make();
        CoderLayer ddp(net, group);
        if (rank == 0 || all_accumulate) {
          const auto local = ddp.no_sync();
          ddp.backward(loss_of(ddp(coder_rows(0, 2).to(dtype)), rank),
                       rank == 0 ? weights[0] : 0.0);
        }
        const Tensor all =
            all_gather(ddp(coder_rows(1 + rank, 2).to(dtype)), group, 0, ResultGradient::partial);
        ddp.backward(loss_of(all, rank), weights[static_cast<std::size_t>(1 + rank)]);
        const double tolerance = dtype == DType::f64 ? 1e-12 : 0.05;
        expect_close(gradients_of(*net), gradients_of(*alone), tolerance, 0.1 * tolerance);
      });
  }
}

// What hooks keep for the next step waits for it.
TEST(StepsWithoutData, LeaveHooksWhatTheyKeep) {
  run_job(2, [](const CommunicatorPtr& group) {
    const auto net = coder_layer(1, 4, 3);
    CoderLayer ddp(net, group);
    ddp.register_comm_hook(std::make_shared<DelayedReduction>());
    std::vector<std::vector<double>> applied;
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (int step = 0; step < 2; ++step) {
        ddp.backward(mean(ddp(coder_rows(10 * epoch + 2 * step + group->rank(), 2))), 2);
        applied.push_back(gradients_of(*net));
        net->zero_grad();
      }
      EXPECT_FALSE(ddp.backward_without_data());
      EXPECT_FALSE(net->weight.grad().defined());
    }
    // Each is the average of the backward before, also of that before the epoch's end.
    for (std::size_t step = 1; step < applied.size(); ++step) {
      const auto alone = coder_layer(1, 4, 3);
      const int seed = static_cast<int>(10 * ((step - 1) / 2) + 2 * ((step - 1) % 2));
      (mean(alone(coder_rows(seed, 2))) * 0.5 + mean(alone(coder_rows(seed + 1, 2))) * 0.5)
          .backward();
      expect_close(applied[step], gradients_of(*alone), 1e-12, 1e-14);
    }
  });
}

TEST(ReproducibleReduction, BeginsAnewWhereTheProgramSeedsAnew) {
  for (const int ranks : {1, 2, 4})
    run_job(ranks, [&](const CommunicatorPtr& group) {
      const auto net = coder_layer(1, 4, 3);
      CoderLayer ddp(net, group,
                     {.reduction = GradientReduction::reproducible, .micro_batches = ranks});
      for (int epoch = 0; epoch < 3; ++epoch) {
        manual_seed(7);
        for (int draws = 0; draws < epoch; ++draws) rand({3});
        mean(dropout(ddp(coder_rows(group->rank(), 3)), 0.5, true)).backward();
        net->zero_grad();
        EXPECT_EQ(default_generator().state().offset >> 24, static_cast<std::uint64_t>(ranks));
      }
    });
}

TEST(ReproducibleReduction, DrawsTheSameNumbersInSeveralModels) {
  const auto hash_on = [](int ranks) {
    std::size_t hash = 0;
    run_job(ranks, [&](const CommunicatorPtr& group) {
      Coder coder;
      coder.wrap(group, {.reduction = GradientReduction::reproducible, .micro_batches = 4});
      optim::SGD optimizer({{coder.first->named_parameters(), {.lr = 0.1}},
                            {coder.decoder->named_parameters("decoder"), {.lr = 0.1}}});
      manual_seed(7);
      const int own = 4 / group->size();
      for (int step = 0; step < 3; ++step) {
        for (int k = 0; k < own; ++k) {
          std::optional<CoderLayer::NoSync> a, b;
          if (k + 1 < own) {
            a.emplace(coder.first->no_sync());
            b.emplace(coder.second->no_sync());
          }
          const Tensor code = dropout(
              (*coder.first)(coder_rows(10 * step + group->rank() * own + k, 3)), 0.5, true);
          mean(square(dropout((*coder.second)(code), 0.5, true))).backward();
        }
        optimizer.step();
        optimizer.zero_grad();
      }
      if (group->rank() == 0)
        hash = testing::hash_of(*coder.encoder) * 31 + testing::hash_of(*coder.decoder);
    });
    return hash;
  };
  const std::size_t expected = hash_on(1);
  EXPECT_EQ(hash_on(2), expected);
  EXPECT_EQ(hash_on(4), expected);
}

}  // namespace
}  // namespace lockstep::parallel
