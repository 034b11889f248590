#include "lockstep/io/gpt2_config.hpp"

#include <fstream>
#include <iterator>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"
#include "support/golden.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::io {
namespace {

using lockstep::testing::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Gpt2Config read(std::string_view text) {
  const TemporaryFolder folder;
  return read_gpt2_config(folder.write("config.json", text));
}

std::string sizes(std::string_view more = "") {
  return R"({"n_layer":2,"n_head":4,"n_embd":32,"n_positions":16,"vocab_size":61)" +
         std::string(more) + "}";
}

TEST(Gpt2ConfigGolden, ReadsWhatTransformersWrote) {
  EXPECT_EQ(read_gpt2_config(lockstep::testing::golden_dir() / "gpt2-tiny" / "config.json"),
            (Gpt2Config{2, 4, 32, 16, 61, 1e-5, {{{50256}}, {{50256}}}}));
}

TEST(Gpt2Config, ReadsBackWhatItWrote) {
  const TemporaryFolder folder;
  const Gpt2Config config{3, 2, 8, 7, 100, 1e-6};
  write_gpt2_config(folder / "config.json", config);
  EXPECT_EQ(read_gpt2_config(folder / "config.json"), config);
}

TEST(Gpt2Config, KeepsTheTokensThatTextsBeginAndEndWith) {
  const TemporaryFolder folder;
  using Tokens = std::vector<std::int64_t>;
  EXPECT_EQ(read(sizes()).special_tokens, SpecialTokens());
  EXPECT_EQ(read(sizes(R"(,"bos_token_id":null,"eos_token_id":[3,5])")).special_tokens,
            (SpecialTokens{Tokens{}, Tokens{3, 5}}));
  EXPECT_EQ(read(sizes(R"(,"bos_token_id":1.5,"eos_token_id":"</s>")")).special_tokens,
            SpecialTokens());
  for (const SpecialTokens& tokens : {SpecialTokens{Tokens{}, Tokens{7}},
                                      SpecialTokens{Tokens{1}, Tokens{2, 3}}, SpecialTokens{}}) {
    Gpt2Config config{3, 2, 8, 7, 100, 1e-6};
    config.special_tokens = tokens;
    write_gpt2_config(folder / "config.json", config);
    EXPECT_EQ(read_gpt2_config(folder / "config.json"), config);
  }
}

TEST(Gpt2Config, TakesTheNamesThatAllModelsHaveFirstAsTransformersDoes) {
  const Gpt2Config config = read(sizes(
      R"(,"num_hidden_layers":3,"num_attention_heads":2,"hidden_size":8,"max_position_embeddings":5)"));
  EXPECT_EQ(std::tuple(config.layers, config.heads, config.channels, config.positions),
            std::tuple(3, 2, 8, 5));
  EXPECT_EQ(read(sizes(R"(,"num_attention_heads":null,"layer_norm_epsilon":0)")).heads, 4);
}

TEST(Gpt2Config, TellsOfDropoutForWhoeverTrainsOn) {
  const TemporaryFolder folder;
  Gpt2Config config{3, 2, 8, 7, 100};
  config.dropout = 0.25;
  config.attention_dropout = 0.5;
  write_gpt2_config(folder / "config.json", config);
  std::ifstream in(folder / "config.json");
  const std::string text(std::istreambuf_iterator<char>(in), {});
  for (const char* const line :
       {"\"attn_pdrop\": 0.5", "\"embd_pdrop\": 0.25", "\"resid_pdrop\": 0.25"})
    EXPECT_THAT(text, HasSubstr(line));
}

TEST(Gpt2Config, NamesSizesThatAreMissingOrImpossible) {
  EXPECT_THAT([] { read("{}"); }, ThrowsMessage<CorruptData>(HasSubstr("'n_layer' is missing")));
  for (const char* bad : {"0", "-2", "1.5", "\"2\"", "1e3", "4294967296", "null", "[]"})
    EXPECT_THROW(read(R"({"n_layer":)" + std::string(bad) + "}"), CorruptData) << bad;
  EXPECT_THROW(read(sizes(R"(,"layer_norm_epsilon":-1)")), CorruptData);
  EXPECT_THAT(
      [] { read(R"({"n_layer":2,"n_head":5,"n_embd":32,"n_positions":16,"vocab_size":61})"); },
      ThrowsMessage<CorruptData>(HasSubstr("'n_head' = 5 does not divide")));
}

TEST(Gpt2Config, RefusesSettingsThatComputeSomethingElse) {
  EXPECT_EQ(read(sizes()).layers, 2);
  EXPECT_EQ(read(sizes(R"(,"n_inner":128)")).layers, 2);
  for (const char* other :
       {R"("model_type":"llama")", R"("n_inner":64)", R"("activation_function":"relu")",
        R"("tie_word_embeddings":false)", R"("scale_attn_weights":false)",
        R"("scale_attn_by_inverse_layer_idx":true)"})
    EXPECT_THROW(read(sizes("," + std::string(other))), Unsupported) << other;
}

TEST(Gpt2Config, NamesFilesThatAreNoConfiguration) {
  for (const std::string& bad : {std::string(), std::string("{"), std::string("[]"),
                                 std::string("{\"a\":\"\xFF\"}"), std::string(2 << 20, ' ')})
    EXPECT_THROW(read(bad), CorruptData);
  EXPECT_THROW(read(std::string(500'000, '[')), CorruptData);
}

}  // namespace
}  // namespace lockstep::io
