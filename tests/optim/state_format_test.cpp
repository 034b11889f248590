#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "functional/compact_state.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/memory/memory_stats.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "optim/all_optimizers.hpp"
#include "support/place.hpp"

namespace lockstep {
namespace {

using optim::Optimizer;
using optim::StateFormat;

template <bool nonnegative>
double decoded(unsigned code) {
  return functional::StateCode<nonnegative>::decode(code);
}

/// Codes of magnitudes: [0, codes).
template <bool nonnegative>
constexpr unsigned magnitudes = nonnegative ? 256 : 128;

template <class Nonnegative>
class StateCodes : public ::testing::Test {
 protected:
  static constexpr bool nonnegative = Nonnegative::value;
  static unsigned encode(float value, float scale, float chance) {
    return functional::StateCode<nonnegative>::encode(value, scale, chance);
  }
};
using Signs = ::testing::Types<std::false_type, std::true_type>;
TYPED_TEST_SUITE(StateCodes, Signs);

TYPED_TEST(StateCodes, GrowFromZeroToOneAndComeBackAsTheyAre) {
  constexpr bool positive = TestFixture::nonnegative;
  constexpr unsigned codes = magnitudes<positive>;
  EXPECT_EQ(decoded<positive>(0), 0.0);
  EXPECT_EQ(decoded<positive>(codes - 1), 1.0);
  for (unsigned code = 1; code < codes; ++code)
    EXPECT_GT(decoded<positive>(code), decoded<positive>(code - 1));
  for (const float scale : {1.0f, 1.7320508f, 3.7f, 9.999999f, 1e-30f, 2.5e30f})
    for (unsigned code = 0; code < codes; ++code) {
      const auto value = static_cast<float>(decoded<positive>(code)) * scale;
      for (const float chance : {0.0f, 0.5f, 1 - 0x1p-16f})
        EXPECT_EQ(this->encode(value, scale, chance), code) << scale << ' ' << chance;
      if (positive || code == 0) continue;
      EXPECT_EQ(this->encode(-value, scale, 0.5f), code + 128) << scale;
      EXPECT_EQ(decoded<false>(code + 128), -decoded<false>(code));
    }
}

TYPED_TEST(StateCodes, RoundToTheNearest) {
  constexpr bool positive = TestFixture::nonnegative;
  std::mt19937 generator(1);
  std::uniform_real_distribution<double> exponent(-7, 0);
  for (int i = 0; i < 100'000; ++i) {
    const auto value = static_cast<float>(std::pow(10.0, exponent(generator)));
    const unsigned code = this->encode(value, 1.0f, 0.5f);
    const double off = std::abs(decoded<positive>(code) - value);
    for (const unsigned other : {code - 1, code + 1}) {
      if (other == 0 || other >= magnitudes<positive>) continue;
      EXPECT_LE(off, std::abs(decoded<positive>(other) - value) * (1 + 1e-4)) << value;
    }
  }
}

TYPED_TEST(StateCodes, KeepTheMeanWhereTheyRoundAtRandom) {
  std::mt19937 generator(2);
  for (const float value : {0.53f, 0.033f, 0.0071f, 3.3e-5f, 2.2e-6f}) {
    constexpr int draws = 1 << 16;
    double sum = 0;
    for (int bits = 0; bits < draws; ++bits)
      sum += decoded<TestFixture::nonnegative>(
          this->encode(value, 1.0f, functional::chance_of(static_cast<std::uint32_t>(bits))));
    EXPECT_NEAR(sum / draws, value, 2e-4 * value);
  }
}

TEST(StateCode, DoesNotLoseWhatMayBeDividedBy) {
  for (const float value : {1e-9f, 1e-20f, 1e-44f})
    EXPECT_NE(functional::StateCode<true>::encode(value, 1.0f, 0.0f), 0) << value;
  EXPECT_EQ(functional::StateCode<true>::encode(0.0f, 1.0f, 0.999f), 0);
  EXPECT_EQ(functional::StateCode<true>::encode(0.0f, 0.0f, 0.999f), 0);
}

TEST(StateCode, MakesNanOfABlockThatHoldsNanOrInfinity) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(functional::scale_of(std::nanf("")), infinity);
  EXPECT_EQ(functional::scale_of(-infinity), infinity);
  EXPECT_EQ(functional::scale_of(-std::numeric_limits<float>::max()),
            std::numeric_limits<float>::max());
  for (const float value : {0.0f, 1e-30f, 2.0f, infinity, std::nanf("")}) {
    const unsigned unsigned_code = functional::StateCode<true>::encode(value, infinity, 0.5f),
                   signed_code = functional::StateCode<false>::encode(-value, infinity, 0.5f);
    EXPECT_TRUE(std::isnan(decoded<true>(unsigned_code) * infinity)) << value;
    EXPECT_TRUE(std::isnan(decoded<false>(signed_code) * infinity)) << value;
  }
}

TEST(StochasticRounding, KeepsTheMeanSignsAndWhatIsNotFinite) {
  for (const float value : {1.0039f, -3.1e-5f, 6.02e23f, 1e-40f}) {
    double sum = 0;
    for (std::uint32_t bits = 0; bits < 65536; ++bits)
      sum += static_cast<float>(functional::round_stochastically(value, bits));
    EXPECT_NEAR(sum / 65536, value, 1e-6 * std::abs(value));
  }
  for (const std::uint32_t bits : {0u, 65535u}) {
    const auto round = [&](float x) {
      return static_cast<float>(functional::round_stochastically(x, bits));
    };
    EXPECT_EQ(round(1.5f), 1.5f);
    EXPECT_TRUE(std::signbit(round(-0.0f)));
    EXPECT_EQ(round(-std::numeric_limits<float>::infinity()),
              -std::numeric_limits<float>::infinity());
    EXPECT_TRUE(std::isnan(round(std::nanf(""))));
    EXPECT_TRUE(std::isnan(round(std::bit_cast<float>(0x7F800001u))));
  }
}

/// Optimizers that keep their states in few bits, on every backend.
class CompactOptimizer : public ::testing::TestWithParam<testing::Place> {
 protected:
  void SetUp() override {
    if (testing::is_missing(place)) GTEST_SKIP() << "no CUDA device on this machine";
  }

  testing::Place place = GetParam();
  testing::PlaceScope scope{place};

  Tensor leaf(const Tensor& x) const { return x.to(place.device).clone().set_requires_grad(); }
  Tensor random(const Shape& shape) { return randn(shape, {}, generator_); }
  Tensor constant(double value) const {
    return full({short_length}, value, {.device = place.device});
  }
  static Tensor state_of(const Optimizer& optimizer, std::string_view key) {
    for (const auto& [name, tensor] : optimizer.state_dict())
      if (name == key) return tensor.to(cpu);
    ADD_FAILURE() << key << " is not there";
    return zeros({1});
  }

  // Above what stays in f32, beyond a chunk of a kernel, and no whole number of blocks.
  static constexpr std::int64_t length = 33'003;
  static constexpr std::int64_t short_length = 4'099;  ///< for many steps

 private:
  Generator generator_{7};
};

constexpr StateFormat few_bits[] = {StateFormat::bf16, StateFormat::blockwise_8bit};

TEST_P(CompactOptimizer, ConvergesAsInF32) {
  for (const auto& each : testing::all_optimizers()) {
    if (!each.has_state_formats) continue;
    const Tensor target = random({short_length}).to(place.device);
    // The distance to the target that is left after some steps with noisy gradients.
    const auto train = [&](StateFormat format, DType dtype, bool masters) {
      auto options = each.options;
      // Their steps are as long as the parameter, which is 0 here.
      if (each.name == "LARS") options["lr"] = 0.05, options["trust_coefficient"] = 1.0;
      if (each.name == "Adafactor") options["lr"] = 0.5, options["eps2"] = 0.1;
      options["state_format"] = format;
      options["master_weights"] = masters;
      options["stochastic_rounding"] = !masters;
      Tensor x = leaf(zeros({short_length}, {.dtype = dtype}));
      const auto optimizer = each.make_groups({{std::vector{x}, options}});
      Generator noise(11);
      for (int step = 0; step < 40; ++step) {
        const Tensor off = x.detach().to(DType::f32) - target;
        x.set_grad((off + randn({short_length}, {}, noise).to(place.device) * 0.3).to(dtype));
        optimizer->step();
      }
      const Tensor off = x.detach().to(DType::f32) - target;
      return mean(off * off).item();
    };
    const double exact = train(StateFormat::full, DType::f32, true);
    EXPECT_LT(exact, 0.9) << each.name;
    for (const StateFormat format : few_bits) {
      EXPECT_NEAR(train(format, DType::f32, true), exact, 0.02 * exact + 1e-3)
          << each.name << ", states in " << name_of(format);
      EXPECT_NEAR(train(format, DType::bf16, false), exact, 0.02 * exact + 1e-3)
          << each.name << ", bf16 parameters, states in " << name_of(format);
    }
  }
}

TEST_P(CompactOptimizer, KeepsItsSecondMomentMoving) {
  for (const StateFormat format : few_bits) {
    Tensor x = leaf(zeros({short_length}));
    optim::AdamW optimizer({x}, {.lr = 1e-5, .state_format = format});
    double expected = 0;
    for (int step = 0; step < 400; ++step) {
      const double gradient = step < 200 ? 0.5 : 0.1;
      x.set_grad(constant(gradient));
      optimizer.step();
      expected += 0.001 * (gradient * gradient - expected);
    }
    EXPECT_NEAR(mean(state_of(optimizer, "0.exp_avg_sq")).item(), expected, 2e-3 * expected)
        << name_of(format);
  }
}

TEST_P(CompactOptimizer, SumsSmallStepsOfBf16ParametersInTheMean) {
  const auto train = [&](bool stochastic) {
    Tensor x = leaf(ones({short_length}, {.dtype = DType::bf16}));
    optim::SGD optimizer({x},
                         {.lr = 1e-4, .master_weights = false, .stochastic_rounding = stochastic});
    for (int step = 0; step < 300; ++step) {
      x.set_grad(constant(1.0).to(DType::bf16));
      optimizer.step();
    }
    return mean(x.detach().to(DType::f32)).item();
  };
  EXPECT_NEAR(train(true), 0.97, 1e-3);
  EXPECT_EQ(train(false), 1.0);
}

TEST_P(CompactOptimizer, GoesOnFromItsSavedState) {
  for (const StateFormat format : few_bits) {
    const auto run = [&](Tensor x, Optimizer& optimizer, int from, int to) {
      for (int i = from; i < to; ++i) {
        Generator generator(100 + static_cast<std::uint64_t>(i));
        x.set_grad(randn({length}, {}, generator).to(place.device).to(x.dtype()));
        optimizer.step();
      }
    };
    const Tensor start = random({length}).to(DType::bf16);
    const optim::AdamWOptions options{.lr = 1e-3,
                                      .amsgrad = true,
                                      .master_weights = false,
                                      .stochastic_rounding = true,
                                      .state_format = format};
    Tensor a = leaf(start), b = leaf(start);
    optim::AdamW whole({a}, options), first({b}, options), second({b}, options);
    run(a, whole, 0, 8);
    run(b, first, 0, 4);
    second.load_state_dict(first.state_dict());
    run(b, second, 4, 8);
    EXPECT_TRUE(equal(a.detach(), b.detach())) << name_of(format);
    EXPECT_TRUE(equal(state_of(whole, "0.exp_avg_sq"), state_of(second, "0.exp_avg_sq")));
  }
}

// Names say which parameter a state is of, and how it is rounded.
TEST_P(CompactOptimizer, GoesOnInAnotherOrderOfNamedParameters) {
  const Tensor start = random({short_length}).to(DType::bf16);
  const optim::AdamWOptions options{.lr = 1e-2,
                                    .master_weights = false,
                                    .stochastic_rounding = true,
                                    .state_format = StateFormat::blockwise_8bit};
  const auto train = [&](bool turns) {
    const NamedTensors one{{"one", leaf(start)}}, other{{"other", leaf(start)}};
    using Groups = optim::AdamW::Groups;
    optim::AdamW first(Groups{{one, options}, {other, options}});
    optim::AdamW second(turns ? Groups{{other, options}, {one, options}}
                              : Groups{{one, options}, {other, options}});
    for (int step = 0; step < 4; ++step) {
      Generator generator(100 + static_cast<std::uint64_t>(step));
      const Tensor gradient = randn({short_length}, {}, generator).to(place.device);
      for (const NamedTensors* each : {&one, &other})
        Tensor((*each)[0].second).set_grad(gradient.to(DType::bf16));
      if (step == 2) second.load_state_dict(first.state_dict());
      (step < 2 ? first : second).step();
    }
    EXPECT_FALSE(equal(one[0].second.detach(), other[0].second.detach()));
    return std::vector{one[0].second.detach(), other[0].second.detach()};
  };
  const auto expected = train(false), actual = train(true);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(equal(actual[i], expected[i]));
}

TEST_P(CompactOptimizer, KeepsWhatUpdatesOfTensorOpsRemember) {
  const Shape shape{72, 60};
  const Tensor target = random(shape).to(place.device);
  for (const auto& each : testing::all_optimizers()) {
    if (each.name != "Muon" && each.name != "Adafactor") continue;
    const auto make = [&](const Tensor& x, StateFormat format) {
      auto options = each.options;
      options["lr"] = 0.2;
      if (each.name == "Adafactor") options["eps2"] = 0.5;
      options["master_weights"] = false;
      options["stochastic_rounding"] = true;
      options["state_format"] = format;
      return each.make_groups({{std::vector{x}, options}});
    };
    const auto run = [&](const Tensor& x, Optimizer& optimizer, int from, int to) {
      for (int step = from; step < to; ++step) {
        Generator noise(100 + static_cast<std::uint64_t>(step));
        const Tensor off = x.detach().to(DType::f32) - target;
        Tensor(x).set_grad((off + randn(shape, {}, noise).to(place.device) * 0.3).to(x.dtype()));
        optimizer.step();
      }
    };
    const auto distance = [&](const Tensor& x) {
      return mean(square(x.detach().to(DType::f32) - target)).item();
    };
    const Tensor start = zeros(shape, {.dtype = DType::bf16});
    const Tensor exact = leaf(start);
    run(exact, *make(exact, StateFormat::full), 0, 12);
    EXPECT_LT(distance(exact), 0.9) << each.name;
    for (const StateFormat format : few_bits) {
      const Tensor a = leaf(start), b = leaf(start);
      run(a, *make(a, format), 0, 12);
      EXPECT_NEAR(distance(a), distance(exact), 0.02 * distance(exact))
          << each.name << ", states in " << name_of(format);
      const auto first = make(b, format), second = make(b, format);
      run(b, *first, 0, 6);
      second->load_state_dict(first->state_dict());
      run(b, *second, 6, 12);
      EXPECT_TRUE(equal(a.detach(), b.detach())) << each.name << ' ' << name_of(format);
    }
  }
}

TEST_P(CompactOptimizer, ChangesNothingInAStepThatIsSkipped) {
  for (const auto& each : testing::all_optimizers()) {
    if (!each.has_state_formats) continue;
    for (const StateFormat format : few_bits) {
      auto options = each.options;
      options["state_format"] = format;
      Tensor x = leaf(random({72, 60}));
      const auto optimizer = each.make_groups({{std::vector{x}, options}});
      x.set_grad(random({72, 60}).to(place.device));
      optimizer->step();
      const Tensor value = x.detach().clone();
      std::vector<std::pair<std::string, Tensor>> before;
      for (const auto& [name, tensor] : optimizer->state_dict())
        before.emplace_back(name, tensor.clone());
      const Tensor scale = full({}, 2.0, {.dtype = DType::f64, .device = place.device});
      optimizer->step({.scale = scale, .found_inf = ones({}, scale.options()), .how = ""});
      EXPECT_TRUE(equal(x.detach(), value)) << each.name;
      const NamedTensors after = optimizer->state_dict();
      ASSERT_EQ(after.size(), before.size());
      for (std::size_t i = 0; i < after.size(); ++i)
        EXPECT_TRUE(equal(after[i].second, before[i].second)) << each.name << ' ' << after[i].first;
    }
  }
}

// Its square is infinite: a scale that no element of the block could be told with.
TEST_P(CompactOptimizer, MakesNanOfTheBlockOfAGradientThatIsTooLarge) {
  Tensor gradient = ones({short_length});
  gradient.slice(0, 300, 301).fill_(1e30);
  for (const auto& each : testing::all_optimizers()) {
    if (each.name != "AdamW" && each.name != "RMSprop" && each.name != "Adagrad") continue;
    auto options = each.options;
    options["state_format"] = StateFormat::blockwise_8bit;
    Tensor x = leaf(zeros({short_length}));
    const auto optimizer = each.make_groups({{std::vector{x}, options}});
    for (int step = 0; step < 2; ++step) {
      x.set_grad(gradient.to(place.device));
      optimizer->step();
    }
    const auto values = x.detach().to(cpu).to_vector<float>();
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(std::isnan(values[i]), i >= 256 && i < 512) << each.name << ' ' << i;
  }
}

TEST_P(CompactOptimizer, TakesStatesOfAnotherFormat) {
  const auto make = [](const Tensor& x, StateFormat format) {
    return optim::AdamW({x}, {.lr = 1e-3, .state_format = format});
  };
  const Tensor start = random({length});
  for (const StateFormat from : {StateFormat::full, StateFormat::bf16, StateFormat::blockwise_8bit})
    for (const StateFormat to :
         {StateFormat::full, StateFormat::bf16, StateFormat::blockwise_8bit}) {
      Tensor x = leaf(start);
      auto saved = make(x, from), loaded = make(x, to);
      x.set_grad(random({length}).to(place.device));
      saved.step();
      loaded.load_state_dict(saved.state_dict());
      EXPECT_EQ(loaded.state_format(), to);
      for (const std::string_view key : {"0.exp_avg", "0.exp_avg_sq"}) {
        const Tensor before = state_of(saved, key), after = state_of(loaded, key);
        EXPECT_EQ(after.dtype(), DType::f32);
        if (to == from || to == StateFormat::full) {
          EXPECT_TRUE(equal(before, after)) << key;
        } else {
          const double largest = amax(abs(before)).item();
          EXPECT_LE(amax(abs(before - after)).item(), 0.008 * largest) << key;
        }
      }
      x.set_grad(random({length}).to(place.device));
      loaded.step();
    }
}

TEST_P(CompactOptimizer, LeavesSmallTensorsInF32AndUpdatesThemBesideOthers) {
  Tensor large = leaf(random({64, 64})), small = leaf(random({64})), none = leaf(zeros({0}));
  Tensor reference = leaf(small.detach());
  optim::AdamW compact({large, none, small}, {.state_format = StateFormat::blockwise_8bit});
  optim::AdamW exact({reference}, {});
  for (int step = 0; step < 3; ++step) {
    const Tensor gradient = random({64}).to(place.device);
    large.set_grad(random({64, 64}).to(place.device));
    none.set_grad(zeros({0}, {.device = place.device}));
    small.set_grad(gradient);
    reference.set_grad(gradient);
    compact.step();
    exact.step();
  }
  const auto values = small.detach().to(cpu).to_vector<float>();
  const auto expected = reference.detach().to(cpu).to_vector<float>();
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-6);
}

TEST_P(CompactOptimizer, ComputesTheSameOnEveryBackend) {
  const Tensor start = random({length}), gradient = random({length});
  for (const StateFormat format : few_bits) {
    const auto train = [&](Device device) {
      Tensor x = start.to(device).to(DType::bf16).set_requires_grad();
      optim::AdamW optimizer({x}, {.lr = 1e-2,
                                   .master_weights = false,
                                   .stochastic_rounding = true,
                                   .state_format = format});
      for (int step = 0; step < 3; ++step) {
        x.set_grad(gradient.to(device).to(DType::bf16));
        optimizer.step();
      }
      return x.detach().to(cpu).to(DType::f32);
    };
    // The same random bits; only what a last bit decides may differ.
    const Tensor same = eq(train(cpu), train(place.device)).to(DType::f32);
    EXPECT_GT(mean(same).item(), 0.999) << name_of(format);
  }
}

TEST_P(CompactOptimizer, WorksOnParametersThatBeginAnywhere) {
  const Tensor flat = random({8 * 4099});
  for (const StateFormat format : few_bits) {
    const auto train = [&](std::int64_t offset) {
      const Tensor memory = zeros({8 * 4099 + 8}, {.device = place.device});
      Tensor x = memory.slice(0, offset, offset + 8 * 4099).detach();
      x.copy_(flat);
      x.set_requires_grad();
      optim::AdamW optimizer({x}, {.lr = 1e-2, .state_format = format});
      for (int step = 0; step < 2; ++step) {
        x.set_grad(flat.to(place.device));
        optimizer.step();
      }
      return x.detach().to(cpu);
    };
    EXPECT_TRUE(equal(train(0), train(3))) << name_of(format);
  }
}

TEST_P(CompactOptimizer, TakesTheMemoryOfItsFormat) {
  constexpr std::int64_t elements = 1 << 19;
  // Bytes of an element that the first step leaves in use.
  const auto bytes = [&](const optim::AdamWOptions& options, DType dtype) {
    Tensor x = leaf(ones({elements}, {.dtype = dtype}));
    x.set_grad(x.detach());
    optim::AdamW optimizer({x}, options);
    const std::size_t before = memory_allocated(place.device);
    optimizer.step();
    return static_cast<double>(memory_allocated(place.device) - before) / elements;
  };
  const double counters = 0.01;
  EXPECT_NEAR(bytes({}, DType::f32), 8, counters);
  EXPECT_NEAR(bytes({.state_format = StateFormat::bf16}, DType::f32), 4, counters);
  EXPECT_NEAR(bytes({.state_format = StateFormat::blockwise_8bit}, DType::f32), 2 + 2.0 / 64,
              counters);
  EXPECT_NEAR(bytes({}, DType::bf16), 12, counters);
  EXPECT_NEAR(bytes({.master_weights = false,
                     .stochastic_rounding = true,
                     .state_format = StateFormat::blockwise_8bit},
                    DType::bf16),
              2 + 2.0 / 64, counters);
}

TEST_P(CompactOptimizer, RefusesWhatItDoesNotOffer) {
  Tensor x = leaf(zeros({4}, {.dtype = DType::f64}));
  x.set_grad(x.detach());
  optim::AdamW wide({x}, {.state_format = StateFormat::bf16});
  EXPECT_THROW(wide.step(), InvalidArgument);
  Tensor y = leaf(zeros({4}, {.dtype = DType::f16}));
  y.set_grad(y.detach());
  optim::SGD half({y}, {.master_weights = false, .stochastic_rounding = true});
  EXPECT_THROW(half.step(), InvalidArgument);
  EXPECT_THROW(optim::AdamW({y}, {.stochastic_rounding = true}), InvalidArgument);
  EXPECT_THROW(optim::RMSprop({y}, {.centered = true, .state_format = StateFormat::bf16}),
               InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Places, CompactOptimizer, ::testing::ValuesIn(testing::places()),
                         [](const auto& each) { return std::string(each.param.backend); });

}  // namespace
}  // namespace lockstep
