#include "lockstep/data/packed_dataset.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/autograd/ops/attention.hpp"
#include "lockstep/autograd/ops/loss.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/data_loader.hpp"
#include "lockstep/tensor/factories.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::data {
namespace {

using lockstep::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Indices = std::vector<std::int64_t>;

Indices values(const Tensor& tensor) {
  const auto flat = tensor.flat<std::int64_t>();
  return {flat.begin(), flat.end()};
}

PackedDataset packed(std::string text, std::int64_t context) {
  return PackedDataset::from_text(std::move(text), {.context = context, .end_of_text = '.'});
}

TEST(PackedDataset, PutsSeveralDocumentsIntoASequenceAndPadsIt) {
  // abcde leaves no room; xyz goes with pq, and r has room left.
  const PackedDataset dataset = packed("abcde.pq..xyz.r.", 5);
  ASSERT_EQ(dataset.size(), 3);
  EXPECT_EQ(dataset.token_count(), 11);
  const PackedBatch batch = dataset.fetch(Indices{1, 2});
  EXPECT_THAT(values(batch.tokens), ElementsAre('x', 'y', 'z', 'p', 'q', 'r', 0, 0, 0, 0));
  EXPECT_THAT(values(batch.targets),
              ElementsAre('y', 'z', '.', 'q', '.', '.', -100, -100, -100, -100));
  EXPECT_THAT(values(batch.positions), ElementsAre(0, 1, 2, 0, 1, 0, 0, 0, 0, 0));
  EXPECT_THAT(values(batch.documents), ElementsAre(0, 0, 0, 1, 1, 0, -1, -1, -1, -1));
}

TEST(PackedDataset, CutsDocumentsThatAreLongerThanASequence) {
  const PackedDataset dataset = packed("abcdefg.xy", 3);
  const PackedBatch batch = dataset.fetch(Indices{0, 1, 2});
  EXPECT_THAT(values(batch.tokens), ElementsAre('a', 'b', 'c', 'd', 'e', 'f', 'g', 'x', 0));
  EXPECT_THAT(values(batch.targets), ElementsAre('b', 'c', 'd', 'e', 'f', 'g', '.', 'y', -100));
  EXPECT_EQ(dataset.size(), 3);
}

// Documents of random lengths; each token tells its document and place.
std::string many_documents() {
  std::mt19937 random(3);
  std::string text;
  for (int i = 0; i < 500; ++i) {
    const auto length = random() % 40;
    for (unsigned place = 0; place < length; ++place)
      text += static_cast<char>('A' + (i * 7 + static_cast<int>(place) * 3) % 58);
    text += '.';
  }
  return text;
}

// Each document of a batch with what follows its last token.
void add_documents(const PackedBatch& batch, std::map<std::string, int>& documents) {
  const std::int64_t context = batch.tokens.size(1);
  const Indices tokens = values(batch.tokens), targets = values(batch.targets),
                places = values(batch.positions), numbers = values(batch.documents);
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (numbers[i] < 0) continue;
    EXPECT_EQ(places[i], std::ssize(text));
    text += static_cast<char>(tokens[i]);
    const bool last =
        (i + 1) % static_cast<std::size_t>(context) == 0 || numbers[i + 1] != numbers[i];
    if (!last) {
      EXPECT_EQ(targets[i], tokens[i + 1]);
      continue;
    }
    EXPECT_EQ(targets[i], '.');
    ++documents[std::exchange(text, {})];
  }
}

// How ranks read sequences.
struct SequenceReading {
  int ranks, workers;
  std::int64_t batch;
};

// The four numbers of each token of each sequence in the order of the epoch, from a state to its
// end, by all ranks, and where they stand after some batches.
std::pair<std::vector<Indices>, LoaderState> read_sequences(const PackedDataset& dataset,
                                                            const SequenceReading& how,
                                                            const LoaderState& from,
                                                            std::int64_t batches = 1000) {
  std::vector<std::vector<std::vector<Indices>>> parts;  // of each rank, of each batch
  LoaderState state;
  for (int rank = 0; rank < how.ranks; ++rank) {
    DataLoader loader(dataset, RandomSampler(dataset.size(), 4),
                      {.batch_size = how.batch,
                       .rank = rank,
                       .world_size = how.ranks,
                       .num_workers = how.workers});
    loader.load_state(from);
    auto& own = parts.emplace_back();
    for (auto& batch : loader) {
      auto& rows = own.emplace_back();
      for (std::int64_t i = 0; i < batch.tokens.size(0); ++i) {
        Indices& row = rows.emplace_back();
        const auto keep = [&](const Tensor& each) {
          const Indices numbers = values(each.slice(0, i, i + 1).contiguous());
          row.insert(row.end(), numbers.begin(), numbers.end());
        };
        batch.visit_tensors(keep);
      }
      if (std::ssize(own) == batches) break;
    }
    state = loader.state();
  }
  std::vector<Indices> all;
  for (std::size_t batch = 0; batch < parts.front().size(); ++batch)
    for (const auto& own : parts) all.insert(all.end(), own[batch].begin(), own[batch].end());
  return {all, state};
}

TEST(PackedDataset, HasEveryDocumentOnceAnEpoch) {
  const std::string text = many_documents();
  std::map<std::string, int> expected;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('.', begin);
    if (end > begin) ++expected[text.substr(begin, end - begin)];
    begin = end + 1;
  }
  const PackedDataset dataset = packed(text, 64);
  // Nearly no padding: the last sequences alone have room.
  EXPECT_GT(static_cast<double>(dataset.token_count()),
            0.99 * static_cast<double>(dataset.size() - 1) * 64);
  ASSERT_EQ(dataset.size(), 147);
  std::map<std::string, int> documents;
  for (const Indices& row : read_sequences(dataset, {1, 0, 7}, {}).first) {
    const Tensor tokens = tensor(row).reshape({1, 4, 64});
    const auto part = [&](std::int64_t i) { return tokens.slice(1, i, i + 1).reshape({1, 64}); };
    add_documents({part(0), part(1), part(2), part(3)}, documents);
  }
  EXPECT_EQ(documents, expected);
}

TEST(PackedDataset, GoesOnWithTheSameSequencesOnAnyNumbersOfRanksAndWorkers) {
  const PackedDataset dataset = packed(many_documents(), 64);
  const auto whole = read_sequences(dataset, {1, 0, 7}, {}).first;
  ASSERT_EQ(std::ssize(whole), dataset.size());
  const auto [begun, state] = read_sequences(dataset, {2, 3, 7}, {}, 8);
  for (const int ranks : {1, 2, 3, 4})
    for (const int workers : {0, 2})
      for (const std::int64_t batch : {7, 13}) {
        auto all = begun;
        for (auto& row : read_sequences(dataset, {ranks, workers, batch}, state).first)
          all.push_back(std::move(row));
        EXPECT_EQ(all, whole) << ranks << " ranks, batches of " << batch;
      }
  DataLoader other(packed(many_documents() + "z.", 64), RandomSampler(dataset.size(), 4));
  EXPECT_THAT([&] { other.load_state(state); },
              ThrowsMessage<InvalidArgument>(HasSubstr(std::to_string(state.signature))));
}

TEST(PackedDataset, HidesDocumentsFromEachOther) {
  const PackedDataset dataset = packed("abc.de.fg.", 8);
  const PackedBatch batch = dataset.fetch(Indices{0});
  const Tensor mask = batch.mask();
  ASSERT_EQ(mask.shape(), (Shape{1, 1, 8, 8}));
  const Indices documents = values(batch.documents);
  for (std::size_t t = 0; t < 8; ++t)
    for (std::size_t s = 0; s < 8; ++s)
      EXPECT_EQ(mask.data<bool>()[t * 8 + s], documents[t] == documents[s]);

  // Attention over a sequence is that over each document alone.
  manual_seed(1);
  const Tensor q = randn({1, 2, 8, 4}), k = randn({1, 2, 8, 4}), v = randn({1, 2, 8, 4});
  const Tensor whole =
      scaled_dot_product_attention(q, k, v, {.mask = mask, .is_causal = true}).contiguous();
  for (const auto& [begin, end] : {std::pair{0, 3}, {3, 5}, {5, 7}}) {
    const auto part = [&](const Tensor& x) { return x.slice(2, begin, end); };
    const Tensor alone =
        scaled_dot_product_attention(part(q), part(k), part(v), {.is_causal = true}).contiguous();
    const Tensor seen = part(whole).contiguous();
    EXPECT_THAT(seen.flat<float>(),
                ::testing::Pointwise(::testing::FloatNear(1e-5f), alone.flat<float>()));
  }
}

TEST(PackedDataset, LeavesPaddingOutOfTheLoss) {
  const PackedBatch batch = packed("abc.", 8).fetch(Indices{0});
  const Tensor logits = randn({8, 128});
  const float padded = cross_entropy(logits, batch.targets.reshape({8})).item<float>();
  const float alone =
      cross_entropy(logits.slice(0, 0, 3), batch.targets.reshape({8}).slice(0, 0, 3)).item<float>();
  EXPECT_FLOAT_EQ(padded, alone);
}

TEST(PackedDataset, Reads16BitTokensAndTellsTextsApart) {
  const TemporaryFolder folder;
  const auto path = folder.write("tokens", std::string_view("\1\0\0\1\x50\xC4\7\0\x50\xC4", 10));
  const auto tokens = PackedDataset::from_token_file(path, {.context = 3});
  EXPECT_THAT(values(tokens.fetch(Indices{0}).tokens), ElementsAre(1, 256, 7));
  EXPECT_THAT(values(tokens.fetch(Indices{0}).targets), ElementsAre(256, 50256, 50256));
  EXPECT_THROW(PackedDataset::from_token_file(folder.write("odd", "abc")), CorruptData);
  EXPECT_THROW(PackedDataset::from_token_file(path, {.end_of_text = 128001}), InvalidArgument);
  const auto wide = folder.write("wide", std::string_view("\1\0\2\0\7\0\0\0\1\xF4\1\0", 12));
  const auto wide_tokens =
      PackedDataset::from_token_file(wide, {.context = 3, .end_of_text = 128001, .token_bytes = 4});
  EXPECT_THAT(values(wide_tokens.fetch(Indices{0}).tokens), ElementsAre(131073, 7, 0));
  EXPECT_EQ(packed("ab.c.", 4).signature(), packed("ab.c.", 4).signature());
  EXPECT_NE(packed("ab.c.", 4).signature(), packed("ab.d.", 4).signature());
  EXPECT_NE(packed("ab.c.", 4).signature(), packed("ab.c.", 5).signature());
}

TEST(PackedDataset, NamesTextsThatMakeNoSequence) {
  EXPECT_THAT([] { packed("abc", 3); },
              ThrowsMessage<InvalidArgument>(HasSubstr("none of 3 tokens is the end_of_text, 46")));
  EXPECT_THAT([] { packed("...", 3); },
              ThrowsMessage<InvalidArgument>(HasSubstr("no document has a token")));
  EXPECT_THROW(packed("", 3), InvalidArgument);
  EXPECT_THROW(packed("ab.", 0), InvalidArgument);
  EXPECT_THROW(packed("ab.", 3).fetch(Indices{1}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::data
