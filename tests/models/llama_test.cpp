#include "lockstep/models/llama.hpp"

#include <cmath>
#include <fstream>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/data/packed_dataset.hpp"
#include "lockstep/io/llama_config.hpp"
#include "lockstep/io/safetensors.hpp"
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

const models::LlamaOptions tiny_llama{.layers = 1,
                                      .heads = 4,
                                      .kv_heads = 2,
                                      .head_dim = 4,
                                      .channels = 8,
                                      .intermediate = 12,
                                      .context = 9,
                                      .vocabulary = 128,
                                      .tensor = {DType::f64}};

class GoldenLlama : public ::testing::TestWithParam<testing::Place> {
 protected:
  void SetUp() override {
    if (testing::is_missing(GetParam())) GTEST_SKIP() << "no CUDA device on this machine";
  }

  testing::PlaceScope scope{GetParam()};
  Device device = GetParam().device;

  fs::path folder = testing::golden_dir() / "llama-tiny";
  io::SafetensorsFile expected = io::SafetensorsFile::open(folder / "expected.safetensors");

  /// The tokens of a step, and what follows each.
  std::pair<Tensor, Tensor> batch_of(std::int64_t step) const {
    const Tensor tokens = expected.tensor("tokens").select(0, step).to(device);
    const std::int64_t time = tokens.size(1) - 1;
    return {tokens.slice(1, 0, time), tokens.slice(1, 1, time + 1)};
  }

  void check_first_batch(DType dtype, double tolerance) {
    const auto model = models::load_hugging_face_llama(folder, {dtype, device});
    const auto [tokens, targets] = batch_of(0);
    expect_close(model(tokens), expected.tensor("logits"), tolerance, "logits");
    const Tensor loss = model(tokens, targets);
    expect_close(loss, expected.tensor("loss").reshape({}), tolerance, "loss");
    loss.backward();
    for (const auto& [name, parameter] : model->named_parameters())
      expect_close(parameter.grad(), expected.tensor("grad." + name), tolerance * 10, name);
  }

  /// Trains as the file's header says. Norms and losses are relative, weights relative in norm.
  void train(DType dtype, double loss_tolerance, double norm_tolerance, double weight_tolerance) {
    const auto model = models::load_hugging_face_llama(folder, {dtype, device});
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
      const Tensor wanted = expected.tensor("after." + name);
      const Tensor found = parameter.detach().to(cpu, DType::f64);
      EXPECT_LE(norm(found - wanted).item(), weight_tolerance * norm(wanted).item()) << name;
    }
  }
};

TEST_P(GoldenLlama, GivesTransformersLogitsLossAndGradientsInF64) {
  check_first_batch(DType::f64, 1e-9);
}
TEST_P(GoldenLlama, GivesTransformersLogitsLossAndGradientsInF32) {
  check_first_batch(DType::f32, 1e-5);
}
TEST_P(GoldenLlama, TrainsLikeTransformersInF64) { train(DType::f64, 1e-9, 1e-9, 1e-7); }
TEST_P(GoldenLlama, TrainsLikeTransformersInF32) { train(DType::f32, 1e-5, 1e-4, 5e-3); }

TEST_P(GoldenLlama, GivesTransformersLogitsWithoutScaledFrequencies) {
  const auto scaled = models::load_hugging_face_llama(folder, {DType::f64, device});
  models::LlamaOptions options = scaled->options();
  options.rope_scaling.reset();
  const auto model = models::llama(options);
  model->load_state_dict(scaled->state_dict());
  const Tensor logits = model(batch_of(0).first);
  expect_close(logits, expected.tensor("logits_default_rope"), 1e-9, "logits");
  EXPECT_FALSE(allclose(logits, scaled(batch_of(0).first)));
}

TEST_P(GoldenLlama, GivesPackedDocumentsWhatTheyGetAlone) {
  models::LlamaOptions options = tiny_llama;
  options.tensor.device = device;
  const auto model = models::llama(options);
  auto batch = data::PackedDataset::from_text("abcd.ef.", {.context = 7, .end_of_text = '.'})
                   .fetch(std::vector<std::int64_t>{0});
  for (Tensor* each : {&batch.tokens, &batch.positions, &batch.documents}) *each = each->to(device);
  const Tensor packed =
      model(batch.tokens,
            models::LlamaForwardOptions{.positions = batch.positions, .mask = batch.mask()});
  const auto alone = [&](std::int64_t begin, std::int64_t end) {
    expect_close(packed.slice(1, begin, end), model(batch.tokens.slice(1, begin, end)).to(cpu),
                 1e-12, "from " + std::to_string(begin));
  };
  alone(0, 4);
  alone(4, 6);
}

INSTANTIATE_TEST_SUITE_P(Backends, GoldenLlama, ::testing::ValuesIn(testing::places()),
                         testing::place_name);

/// A folder with a tiny model in it.
class LlamaFiles : public ::testing::Test {
 protected:
  void save(const models::LlamaOptions& options, std::uint64_t shard_bytes = 5'000'000'000) {
    model = models::llama(options);
    models::save_hugging_face(*model, folder, shard_bytes);
  }
  void expect_same_logits() const {
    const Tensor tokens = tensor<std::int64_t>({1, 2, 3}).unsqueeze(0);
    const auto again = models::load_hugging_face_llama(folder, {DType::f64});
    EXPECT_TRUE(equal(model(tokens), again(tokens)));
  }
  void write(const char* file, const std::string& text) const {
    std::ofstream(folder / file) << text;
  }
  /// Writes config.json with a setting replaced.
  void set(const std::string& key, const std::string& value) const {
    std::ifstream in(folder / "config.json");
    std::string text(std::istreambuf_iterator<char>(in), {});
    const auto begin = text.find('"' + key + '"');
    ASSERT_NE(begin, std::string::npos);
    text.replace(begin, text.find_first_of(",}\n", begin) - begin, '"' + key + "\": " + value);
    write("config.json", text);
  }

  testing::TemporaryFolder temporary;
  fs::path folder = temporary.path() / "model";
  nn::ModulePtr<models::Llama> model = models::llama(tiny_llama);
};

TEST_F(LlamaFiles, ComesBackFromOneFileOrSeveralTiedOrNot) {
  save(tiny_llama);
  EXPECT_TRUE(fs::exists(folder / "model.safetensors"));
  expect_same_logits();
  models::LlamaOptions untied = tiny_llama;
  untied.tied_embeddings = false;
  untied.rope_scaling.reset();
  save(untied, 3000);
  EXPECT_TRUE(fs::exists(folder / "model.safetensors.index.json"));
  EXPECT_FALSE(fs::exists(folder / "model.safetensors"));
  expect_same_logits();
  save(tiny_llama);
  EXPECT_FALSE(fs::exists(folder / "model.safetensors.index.json"));
  expect_same_logits();
}

TEST_F(LlamaFiles, RefusesSettingsThatItDoesNotHave) {
  const auto error_of = [&]<class Error>(const std::string& key, const std::string& value) {
    save(tiny_llama);
    set(key, value);
    EXPECT_THROW(models::load_hugging_face_llama(folder), Error) << key << " = " << value;
  };
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::string>>{{"model_type", "\"mistral\""},
                                                        {"hidden_act", "\"gelu\""},
                                                        {"attention_bias", "true"},
                                                        {"mlp_bias", "true"},
                                                        {"rope_type", "\"yarn\""}})
    error_of.operator()<Unsupported>(key, value);
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::string>>{{"num_key_value_heads", "3"},
                                                        {"head_dim", "5"},
                                                        {"rms_norm_eps", "-1"},
                                                        {"factor", "\"many\""},
                                                        {"tie_word_embeddings", "2"}})
    error_of.operator()<CorruptData>(key, value);
  error_of.operator()<InvalidArgument>("num_hidden_layers", "2147483647");
  error_of.operator()<InvalidArgument>("intermediate_size", "11");
}

TEST_F(LlamaFiles, RefusesABrokenIndex) {
  save(tiny_llama, 3000);
  const auto index = [&](const std::string& text) {
    write("model.safetensors.index.json", text);
    EXPECT_THROW(models::load_hugging_face_llama(folder), CorruptData) << text;
  };
  index("{");
  index(R"({"weight_map": {"model.norm.weight": 3}})");
  index(R"({"weight_map": {"model.norm.weight": "../model/a.safetensors"}})");
  index(R"({"weight_map": {"other": "model-00001-of-00004.safetensors"}})");
}

TEST_F(LlamaFiles, RefusesATensorInTwoFiles) {
  save(tiny_llama, 3000);
  const fs::path second = folder / "model-00002-of-00004.safetensors";
  const auto file = io::SafetensorsFile::open(second);
  NamedTensors state{{"model.embed_tokens.weight", zeros({1})}};
  for (const std::string& name : file.names())
    if (name != state[0].first) state.emplace_back(name, file.tensor(name));
  io::save_safetensors(second, state);
  EXPECT_THROW(models::load_hugging_face_llama(folder), CorruptData);
}

TEST_F(LlamaFiles, AreFoundInAFolderWhoseNameEndsAsAFileDoes) {
  folder = temporary.path() / "a.safetensors";
  save(tiny_llama);
  set("hidden_act", "\"swish\"");
  expect_same_logits();
}

TEST(Llama, RefusesWhatDoesNotFit) {
  EXPECT_THROW(models::llama({.kv_heads = 5}), InvalidArgument);
  EXPECT_THROW(models::llama({.rope_theta = 0}), InvalidArgument);
  EXPECT_THROW(models::llama({.rope_theta = std::nan("")}), InvalidArgument);
  EXPECT_THROW(models::llama({.norm_eps = -1e-6}), InvalidArgument);
  EXPECT_THROW(models::llama({.rope_scaling = io::RopeScaling{.factor = 0}}), InvalidArgument);
  EXPECT_THROW(
      models::llama({.rope_scaling = io::RopeScaling{.low_freq_factor = 9, .high_freq_factor = 3}}),
      InvalidArgument);
  EXPECT_THROW(models::llama({.head_dim = 7}), InvalidArgument);
  EXPECT_THROW(models::llama({.layers = 0}), InvalidArgument);
  const auto model = models::llama(tiny_llama);
  EXPECT_THROW(model(tensor<std::int64_t>({1, 2})), InvalidArgument);
  EXPECT_THROW(model(zeros({1, 10}, {DType::i64})), InvalidArgument);
  const models::LlamaForwardOptions rows{.positions = zeros({2, 3}, {DType::i64})};
  EXPECT_THROW(model(zeros({1, 3}, {DType::i64}), rows), InvalidArgument);
}

// Residuals are parts of products, unless somebody looks at what lies between.
TEST(Llama, GivesTheSameWhereHooksSeeItsBranches) {
  const auto model = models::llama(tiny_llama);
  const Tensor tokens = tensor<std::int64_t>({1, 2, 3, 4}).unsqueeze(0);
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
  int branches = 0;
  for (const auto& [name, module] : model->named_modules())
    if (name.ends_with("self_attn") || name.ends_with("down_proj"))
      module->add_call_hooks({.after = [&](nn::Module&, auto) { ++branches; }});
  run();
  EXPECT_EQ(branches, 2);
  for (std::size_t i = 0; i < results.size() / 2; ++i)
    EXPECT_TRUE(allclose(results[i], results[i + results.size() / 2], 1e-10, 1e-12)) << i;
}

TEST(Llama, HasHuggingFacesNames) {
  models::LlamaOptions options = tiny_llama;
  options.tied_embeddings = false;
  std::vector<std::string> names;
  for (const auto& [name, parameter] : models::llama(options)->state_dict()) names.push_back(name);
  EXPECT_THAT(
      names,
      ::testing::ElementsAre(
          "model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
          "model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.v_proj.weight",
          "model.layers.0.self_attn.o_proj.weight", "model.layers.0.mlp.gate_proj.weight",
          "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.down_proj.weight",
          "model.layers.0.input_layernorm.weight", "model.layers.0.post_attention_layernorm.weight",
          "model.norm.weight", "lm_head.weight"));
}

TEST(Llama, TakesABatchWithoutRows) {
  const auto model = models::llama(tiny_llama);
  const Tensor none = zeros({0, 5}, {.dtype = DType::i64});
  const Tensor logits = model(none);
  EXPECT_EQ(logits.shape(), Shape({0, 5, 128}));
  logits.sum().backward();
  EXPECT_EQ(model->model->norm->weight.grad().abs().sum().item(), 0);
}

TEST(Llama, PaddingGetsNoGradientAsAToken) {
  models::LlamaOptions options = tiny_llama;
  options.tied_embeddings = false;
  options.padding_index = 3;
  const auto model = models::llama(options);
  const nn::Parameter& table = model->model->embed_tokens->weight;
  EXPECT_EQ(table.select(0, 3).abs().sum().item(), 0);
  model(tensor<std::int64_t>({3, 4, 3}).reshape({1, 3}),
        tensor<std::int64_t>({4, 3, 5}).reshape({1, 3}))
      .backward();
  EXPECT_EQ(table.grad().select(0, 3).abs().sum().item(), 0);
  EXPECT_GT(table.grad().select(0, 4).abs().sum().item(), 0);
}

TEST(Llama, HooksOfTheOutputLayerHearOfItsCalls) {
  models::LlamaOptions options = tiny_llama;
  options.tied_embeddings = false;
  const auto model = models::llama(options);
  const Tensor tokens = tensor<std::int64_t>({3, 4, 9}).reshape({1, 3});
  const Tensor fused = model(tokens, tokens);
  int calls = 0;
  (*model->lm_head)->add_call_hooks({.after = [&](nn::Module&, auto) { ++calls; }});
  EXPECT_NEAR(model(tokens, tokens).item(), fused.item(), 1e-12);
  model(tokens);
  EXPECT_EQ(calls, 2);
}

TEST(Llama, IsSavedOnlyAsTransformersReadsIt) {
  models::LlamaOptions options = tiny_llama;
  options.channels = 10;
  const testing::TemporaryFolder folder;
  EXPECT_THROW(save_hugging_face(*models::llama(options), folder / "model"), InvalidArgument);
  EXPECT_FALSE(fs::exists(folder / "model"));
}

/// The configuration of a small Llama with other settings.
io::LlamaConfig config_with(const std::string& settings) {
  const testing::TemporaryFolder folder;
  return io::read_llama_config(
      folder.write("config.json",
                   R"({"model_type": "llama", "num_hidden_layers": 1, "num_attention_heads": 4,
          "hidden_size": 8, "intermediate_size": 12, "max_position_embeddings": 9,
          "vocab_size": 128, "rms_norm_eps": 1e-5, )" +
                       settings + "}"));
}

TEST(LlamaConfig, FindsTheSettingsOfRotaryFrequenciesWhereverTheyAre) {
  EXPECT_EQ(config_with(R"("rope_theta": 37)").rope_theta, 37);
  EXPECT_EQ(config_with(R"("rope_theta": 37, "rope_parameters": {})").rope_theta, 37);
  EXPECT_EQ(config_with(R"("rope_scaling": {"type": "default", "rope_theta": 37})").rope_theta, 37);
  const auto scaled = config_with(
      R"("rope_theta": 37, "original_max_position_embeddings": 16, "rope_scaling": {"rope_type":
         "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4})");
  EXPECT_EQ(scaled.rope_scaling->original_max_position_embeddings, 16);
  EXPECT_EQ(scaled.rope_theta, 37);
}

TEST(LlamaConfig, RefusesWhatWouldChangeTheModelInSilence) {
  const auto refused = [](const std::string& settings) {
    EXPECT_THROW(config_with(settings), Unsupported) << settings;
  };
  refused(
      R"("rope_parameters": {"rope_type": "default"}, "rope_scaling": {"rope_type": "linear"})");
  refused(R"("rope_theta": 37, "rope_parameters": {"rope_theta": 38})");
  refused(R"("attention_dropout": 0.5)");
  EXPECT_EQ(config_with(R"("pad_token_id": -1)").padding_index, 127);
  EXPECT_EQ(config_with(R"("pad_token_id": null)").padding_index, -1);
  EXPECT_THROW(config_with(R"("pad_token_id": 128)"), CorruptData);
  EXPECT_THROW(config_with("\"x\": " + std::string(100'000, '[') + std::string(100'000, ']')),
               CorruptData);
}

}  // namespace
}  // namespace lockstep
