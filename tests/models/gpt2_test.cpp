#include "lockstep/models/gpt2.hpp"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/data/packed_dataset.hpp"
#include "lockstep/io/safetensors.hpp"
#include "lockstep/io/sharded_safetensors.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/golden.hpp"
#include "support/place.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace {

using testing::expect_close;
namespace fs = std::filesystem;

const models::Gpt2Options tiny_gpt2{
    .layers = 2, .heads = 2, .channels = 8, .context = 6, .vocabulary = 11};

Tensor tokens_of(std::initializer_list<std::int64_t> values) {
  return tensor<std::int64_t>(values).unsqueeze(0);
}

/// A name's tensor in our layout: linear weights of the file are transposed.
Tensor expected_tensor(const io::SafetensorsFile& file, const std::string& prefix,
                       const std::string& name, const Tensor& like) {
  const Tensor value = file.tensor(prefix + name);
  const bool linear = name.find(".c_") != std::string::npos && value.dim() == 2;
  const Tensor ours = linear ? value.transpose(0, 1) : value;
  EXPECT_EQ(ours.shape(), like.shape()) << name;
  return ours;
}

class GoldenGpt2 : public ::testing::TestWithParam<testing::Place> {
 protected:
  void SetUp() override {
    if (testing::is_missing(GetParam())) GTEST_SKIP() << "no CUDA device on this machine";
  }

  testing::PlaceScope scope{GetParam()};
  Device device = GetParam().device;

  fs::path folder = testing::golden_dir() / "gpt2-tiny";
  io::SafetensorsFile expected = io::SafetensorsFile::open(folder / "expected.safetensors");

  /// The tokens of a step, and what follows each.
  std::pair<Tensor, Tensor> batch_of(std::int64_t step) const {
    const Tensor tokens = expected.tensor("tokens").select(0, step).to(device);
    const std::int64_t time = tokens.size(1) - 1;
    return {tokens.slice(1, 0, time), tokens.slice(1, 1, time + 1)};
  }

  void check_first_batch(DType dtype, double tolerance) {
    const auto model = models::load_hugging_face(folder, {dtype, device});
    const auto [tokens, targets] = batch_of(0);
    const Tensor logits = model(tokens);
    const Tensor loss = cross_entropy(logits.flatten(0, 1), targets.flatten());
    expect_close(model(tokens, targets), loss, tolerance, "loss without logits");
    expect_close(logits, expected.tensor("logits"), tolerance, "logits");
    expect_close(loss, expected.tensor("loss").reshape({}), tolerance, "loss");
    loss.backward();
    for (const auto& [name, parameter] : model->named_parameters())
      expect_close(parameter.grad(), expected_tensor(expected, "grad.", name, parameter),
                   tolerance * 10, name);
  }

  /// Trains as the file's header says. Norms and losses are relative, weights relative in norm.
  void train(DType dtype, double loss_tolerance, double norm_tolerance, double weight_tolerance) {
    const auto model = models::load_hugging_face(folder, {dtype, device});
    optim::AdamW optimizer(model->parameters(), {.lr = 4e-3, .beta2 = 0.95, .weight_decay = 0.1});
    const auto losses = expected.tensor("train_losses").to_vector<double>();
    const auto norms = expected.tensor("grad_norms").to_vector<double>();
    for (std::size_t step = 0; step < losses.size(); ++step) {
      const auto [tokens, targets] = batch_of(static_cast<std::int64_t>(step));
      const Tensor loss = model(tokens, targets);
      EXPECT_NEAR(loss.item(), losses[step], loss_tolerance * losses[step]) << "step " << step;
      optimizer.zero_grad();
      loss.backward();
      EXPECT_NEAR(optim::clip_grad_norm_(model->parameters(), 1.0).item(), norms[step],
                  norm_tolerance * norms[step])
          << "step " << step;
      optimizer.step();
    }
    for (const auto& [name, parameter] : model->named_parameters()) {
      const Tensor wanted = expected_tensor(expected, "after.", name, parameter);
      const Tensor found = parameter.detach().to(cpu, DType::f64);
      EXPECT_LE(norm(found - wanted).item(), weight_tolerance * norm(wanted).item()) << name;
    }
  }
};

TEST_P(GoldenGpt2, GivesPytorchsLogitsLossAndGradientsInF64) {
  check_first_batch(DType::f64, 1e-9);
}
TEST_P(GoldenGpt2, GivesPytorchsLogitsLossAndGradientsInF32) {
  check_first_batch(DType::f32, 1e-5);
}
TEST_P(GoldenGpt2, TrainsLikePytorchInF64) { train(DType::f64, 1e-9, 1e-9, 1e-7); }
TEST_P(GoldenGpt2, TrainsLikePytorchInF32) { train(DType::f32, 1e-5, 1e-4, 5e-3); }

TEST_P(GoldenGpt2, SavesWhatItLoaded) {
  const auto model = models::load_hugging_face(folder, {DType::f32, device});
  const testing::TemporaryFolder temporary;
  models::save_hugging_face(*model, temporary.path() / "new" / "model");
  const auto saved =
      io::SafetensorsFile::open(temporary.path() / "new" / "model" / "model.safetensors");
  const auto original = io::SafetensorsFile::open(folder / "model.safetensors");
  EXPECT_THAT(saved.names(), ::testing::UnorderedElementsAreArray(original.names()));
  for (const std::string& name : original.names())
    EXPECT_TRUE(equal(saved.tensor(name), original.tensor(name))) << name;
  EXPECT_EQ(saved.metadata(), original.metadata());
}

/// A model in training, and documents of bytes: one row of several, one with padding.
class PackedGpt2 : public GoldenGpt2 {
 protected:
  void SetUp() override {
    GoldenGpt2::SetUp();
    if (IsSkipped()) return;
    for (Tensor* each : {&batch.tokens, &batch.targets, &batch.positions, &batch.documents})
      *each = each->to(device);
  }
  static Tensor loss_of(const Tensor& logits, const Tensor& targets) {
    return cross_entropy(logits.reshape({-1, logits.size(-1)}), targets.reshape({-1}),
                         {.reduction = Reduction::sum});
  }
  nn::ModulePtr<models::Gpt2> make_model() const {
    manual_seed(3);
    return models::gpt2({.layers = 2,
                         .heads = 2,
                         .channels = 8,
                         .context = 9,
                         .vocabulary = 128,
                         .tensor = {DType::f64, device}});
  }

  data::PackedDataset documents =
      data::PackedDataset::from_text("abcd.ef.ghi.xyz.r.", {.context = 9, .end_of_text = '.'});
  data::PackedBatch batch = documents.fetch(std::vector<std::int64_t>{0, 1});
};

TEST_P(PackedGpt2, GivesEachDocumentWhatItWouldAlone) {
  const auto model = make_model(), alone = make_model();
  const models::Gpt2ForwardOptions places{batch.positions, batch.mask()};
  const LinearCrossEntropyOptions summed{.reduction = Reduction::sum};
  const Tensor logits = model(batch.tokens, places).detach();
  model(batch.tokens, batch.targets, places, summed).backward();
  const Tensor numbers = batch.documents.to(cpu);
  int count = 0;
  for (std::int64_t row = 0; row < 2; ++row)
    for (std::int64_t begin = 0, end = 0; begin < 9; begin = end) {
      const auto number = [&](std::int64_t at) { return numbers[row][at].item<std::int64_t>(); };
      while (end < 9 && number(end) == number(begin)) ++end;
      if (number(begin) < 0) continue;
      const auto part = [&](const Tensor& x) {
        return x.slice(0, row, row + 1).slice(1, begin, end);
      };
      const Tensor own = alone(part(batch.tokens));
      expect_close(part(logits), own.detach().to(cpu), 1e-12, "logits");
      loss_of(own, part(batch.targets)).backward();
      ++count;
    }
  EXPECT_EQ(count, 5);
  const auto wanted = alone->named_parameters();
  for (const auto& [name, parameter] : model->named_parameters())
    expect_close(parameter.grad(),
                 std::ranges::find(wanted, name, &NamedTensors::value_type::first)->second.grad(),
                 1e-11, name);
  EXPECT_FALSE(allclose(logits, model(batch.tokens)));
}

TEST_P(PackedGpt2, TakesPositionsForAllRowsAtOnceAndRefusesOthers) {
  const auto model = make_model();
  const auto with = [&](const Tensor& positions) {
    return model(batch.tokens, models::Gpt2ForwardOptions{.positions = positions});
  };
  const Tensor own = arange(9).to(device);
  EXPECT_TRUE(equal(with(own.unsqueeze(0)), model(batch.tokens)));
  EXPECT_THROW(with(own.slice(0, 0, 8)), InvalidArgument);
  const Tensor rows = own.unsqueeze(0).expand({batch.tokens.size(0) + 1, 9});
  EXPECT_THROW(with(rows), InvalidArgument);
  const auto one_row = [&] {  // whose logits would have as many as the positions
    return model(batch.tokens.slice(0, 0, 1), models::Gpt2ForwardOptions{.positions = rows});
  };
  EXPECT_THROW(one_row(), InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Backends, PackedGpt2, ::testing::ValuesIn(testing::places()),
                         testing::place_name);
INSTANTIATE_TEST_SUITE_P(Backends, GoldenGpt2, ::testing::ValuesIn(testing::places()),
                         testing::place_name);

TEST(Gpt2, ComesBackFromAFileWithItsConfigurationBesideIt) {
  const testing::TemporaryFolder temporary;
  const auto model = models::gpt2(tiny_gpt2);
  models::save_hugging_face(*model, temporary.path() / "a.safetensors");
  const auto again = models::load_hugging_face(temporary.path() / "a.safetensors");
  const Tensor tokens = tokens_of({1, 2, 3});
  EXPECT_TRUE(equal(model(tokens), again(tokens)));
  EXPECT_EQ(again->options().heads, 2);
}

TEST(Gpt2, ComesBackFromSeveralFilesAndDrawsNothing) {
  const testing::TemporaryFolder temporary;
  const auto model = models::gpt2(tiny_gpt2);
  models::save_hugging_face(*model, temporary.path());
  const auto whole = io::SafetensorsFile::open(temporary.path() / "model.safetensors");
  NamedTensors state;
  for (const std::string& name : whole.names()) state.emplace_back(name, whole.tensor(name));
  io::save_sharded_safetensors(temporary.path(), state, 500);
  ASSERT_FALSE(std::filesystem::exists(temporary.path() / "model.safetensors"));
  manual_seed(3);
  const auto again = models::load_hugging_face(temporary.path());
  const double next = rand({1}).item();
  manual_seed(3);
  EXPECT_EQ(rand({1}).item(), next);
  const Tensor tokens = tokens_of({1, 2, 3});
  EXPECT_TRUE(equal(model(tokens), again(tokens)));
}

TEST(Gpt2, RefusesAModelOfAnotherKind) {
  const testing::TemporaryFolder temporary;
  models::save_hugging_face(*models::gpt2(tiny_gpt2), temporary.path());
  EXPECT_THROW(models::load_hugging_face(temporary.path() / "nowhere"), Error);
  const auto sizes = R"("n_layer": 2, "n_head": 2, "n_embd": 8, "vocab_size": 11)";
  const auto write = [&](const std::string& more) {
    std::ofstream(temporary.path() / "config.json") << '{' << sizes << ", " << more << '}';
  };
  write(R"("n_positions": 6, "model_type": "llama")");
  EXPECT_THROW(models::load_hugging_face(temporary.path()), Unsupported);
  write(R"("n_positions": 7)");  // the file's wpe has 6 rows
  const std::string file = (temporary.path() / "model.safetensors").string();
  EXPECT_THAT([&] { models::load_hugging_face(temporary.path()); },
              ::testing::ThrowsMessage<InvalidArgument>(
                  ::testing::AllOf(::testing::StartsWith(file + " does not fit its config.json"),
                                   ::testing::HasSubstr("wpe"))));
}

// A tiny model's files, with the output layer's weight under a name of its own.
class Gpt2OutputLayer : public ::testing::Test {
 protected:
  Gpt2OutputLayer() { models::save_hugging_face(*model, temporary.path()); }

  /// Writes the file again, without the embedding if `replaces_embedding`.
  void save(const Tensor& output, bool replaces_embedding) const {
    NamedTensors state = model->state_dict();
    for (auto& [name, value] : state)
      if (name.find(".c_") != std::string::npos && value.dim() == 2) value = value.transpose(0, 1);
    if (replaces_embedding)
      std::erase_if(state, [](const auto& named) { return named.first == embedding; });
    state.emplace_back("lm_head.weight", output);
    io::save_safetensors(temporary.path() / "model.safetensors", state);
  }

  static constexpr std::string_view embedding = "transformer.wte.weight";
  testing::TemporaryFolder temporary;
  nn::ModulePtr<models::Gpt2> model = models::gpt2(tiny_gpt2);
  Tensor weight = model->state_dict().front().second;
};

TEST_F(Gpt2OutputLayer, StandsForTheEmbeddingThatIsNotThere) {
  ASSERT_EQ(model->state_dict().front().first, embedding);
  save(weight, true);
  const Tensor tokens = tokens_of({1, 2, 3});
  EXPECT_TRUE(equal(models::load_hugging_face(temporary.path())(tokens), model(tokens)));
}

TEST_F(Gpt2OutputLayer, MayRepeatTheEmbeddingButNotDiffer) {
  save(weight, false);
  EXPECT_NO_THROW(models::load_hugging_face(temporary.path()));
  save(weight + 1, false);
  EXPECT_THROW(models::load_hugging_face(temporary.path()), InvalidArgument);
}

TEST(Gpt2, RefusesAConfigurationFarLargerThanItsFile) {
  const testing::TemporaryFolder temporary;
  models::save_hugging_face(*models::gpt2(tiny_gpt2), temporary.path());
  std::ofstream(temporary.path() / "config.json")
      << R"({"n_layer": 2147483647, "n_head": 2, "n_embd": 8, "vocab_size": 11, "n_positions": 6})";
  EXPECT_THROW(models::load_hugging_face(temporary.path()), InvalidArgument);
}

TEST(Gpt2, HasHuggingFacesNames) {
  const auto model =
      models::gpt2({.layers = 1, .heads = 1, .channels = 4, .context = 3, .vocabulary = 5});
  std::vector<std::string> names;
  for (const auto& [name, parameter] : model->named_parameters()) names.push_back(name);
  EXPECT_THAT(names, ::testing::ElementsAre(
                         "transformer.wte.weight", "transformer.wpe.weight",
                         "transformer.h.0.ln_1.weight", "transformer.h.0.ln_1.bias",
                         "transformer.h.0.attn.c_attn.weight", "transformer.h.0.attn.c_attn.bias",
                         "transformer.h.0.attn.c_proj.weight", "transformer.h.0.attn.c_proj.bias",
                         "transformer.h.0.ln_2.weight", "transformer.h.0.ln_2.bias",
                         "transformer.h.0.mlp.c_fc.weight", "transformer.h.0.mlp.c_fc.bias",
                         "transformer.h.0.mlp.c_proj.weight", "transformer.h.0.mlp.c_proj.bias",
                         "transformer.ln_f.weight", "transformer.ln_f.bias"));
}

TEST(Gpt2, StartsAsPublished) {
  manual_seed(0);
  const auto model =
      models::gpt2({.layers = 8, .heads = 2, .channels = 32, .context = 64, .vocabulary = 100});
  const auto deviation = [](const Tensor& x) { return std::sqrt(var(x.detach()).item()); };
  const auto& block = *model->transformer->h[0];
  EXPECT_NEAR(deviation(model->transformer->wte->weight), 0.02, 2e-3);
  EXPECT_NEAR(deviation(block.attn->c_attn->weight), 0.02, 2e-3);
  EXPECT_NEAR(deviation(block.mlp->c_proj->weight), 0.02 / 4, 5e-4);
  EXPECT_EQ(amax(abs(block.attn->c_attn->bias)).item(), 0.0);
  EXPECT_EQ(amin(block.ln_1->weight).item(), 1.0);
}

TEST(Gpt2, RefusesWhatDoesNotFit) {
  EXPECT_THROW(models::gpt2({.heads = 5}), InvalidArgument);
  EXPECT_THROW(models::gpt2({.norm_eps = -1}), InvalidArgument);
  EXPECT_THAT([] { models::gpt2({.layers = 0}); },
              ::testing::ThrowsMessage<InvalidArgument>(
                  ::testing::HasSubstr("GPT-2: layers = 0; all sizes must be at least 1")));
  const auto model = models::gpt2(tiny_gpt2);
  EXPECT_THROW(model(tensor<std::int64_t>({1, 2})), InvalidArgument);
  EXPECT_THROW(model(zeros({1, 7}, {DType::i64})), InvalidArgument);
}

// Residuals and GELU are parts of products, unless somebody looks at what lies between.
TEST(Gpt2, GivesTheSameWhereHooksSeeItsBranches) {
  const auto model = models::gpt2(tiny_gpt2);
  const Tensor tokens = tokens_of({1, 2, 3, 4});
  std::vector<Tensor> results;
  const auto run = [&] {
    model->zero_grad();
    const Tensor logits = model(tokens);
    sum(logits * logits).backward();
    results.push_back(logits.detach());
    for (const auto& [name, parameter] : model->named_parameters())
      results.push_back(parameter.grad().clone());
  };
  run();
  int branches = 0, layers = 0;
  for (const auto& [name, module] : model->named_modules()) {
    if (name.ends_with(".attn"))
      module->add_call_hooks({.before = [&](nn::Module&, auto) { ++branches; }});
    if (name.ends_with("mlp.c_fc"))
      module->add_call_hooks({.before = [&](nn::Module&, auto) { ++layers; }});
  }
  run();
  EXPECT_GT(branches, 0);
  EXPECT_EQ(layers, branches);
  for (std::size_t i = 0; i < results.size() / 2; ++i)
    EXPECT_TRUE(allclose(results[i], results[i + results.size() / 2], 1e-4, 1e-6)) << i;
}

TEST(Gpt2, DoesNotSeeTheFuture) {
  const auto model = models::gpt2(tiny_gpt2);
  const Tensor a = model(tokens_of({1, 2, 3, 4})), b = model(tokens_of({1, 2, 3, 9}));
  EXPECT_TRUE(allclose(a.slice(1, 0, 3), b.slice(1, 0, 3)));
  EXPECT_FALSE(allclose(a, b));
}

}  // namespace
}  // namespace lockstep
