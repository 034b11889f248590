#include "lockstep/io/safetensors.hpp"

#include <cerrno>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "io/file_calls.hpp"
#include "lockstep/io/file_error.hpp"
#include "lockstep/io/sharded_safetensors.hpp"
#include "lockstep/tensor/compare.hpp"
#include "lockstep/tensor/factories.hpp"
#include "safetensors_bytes.hpp"
#include "support/place.hpp"
#include "support/resident_bytes.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::io {
namespace {

using lockstep::testing::read_file, lockstep::testing::resident_bytes;
using lockstep::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// A file of one tensor "a" with the given fields and data.
std::string one_tensor(std::string_view fields, std::string_view data) {
  return file_bytes("{\"a\":{" + std::string(fields) + "}}") + std::string(data);
}

class SafetensorsOnGpu : public lockstep::testing::OnGpu {};

TEST_F(SafetensorsOnGpu, BringHomeWhatIsStillBeingComputed) {
  const TemporaryFolder folder;
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32,
                            DType::u8, DType::boolean}) {
    SCOPED_TRACE(name(dtype));
    const Tensor values = tensor<double>({0, 1, 1, 0, 1, 0}).reshape({2, 3}).to(dtype);
    const Tensor there = values.to(device).clone();
    save_safetensors(folder / "m", {{"x", there}, {"view", there.transpose(0, 1).slice(0, 1, 3)}});
    const auto file = SafetensorsFile::open(folder / "m");
    EXPECT_TRUE(equal(file.tensor("x"), values));
    EXPECT_TRUE(equal(file.tensor("view"), values.transpose(0, 1).slice(0, 1, 3)));
    EXPECT_TRUE(equal(file.tensor("x").to(device).to(cpu), values));
  }
}

class EveryDType : public ::testing::TestWithParam<DType> {};

TEST_P(EveryDType, SurvivesSavingAndReading) {
  const TemporaryFolder folder;
  const Tensor saved = arange(0.0, 6.0, 1.0, {.dtype = DType::f64}).reshape({2, 3}).to(GetParam());
  save_safetensors(folder / "m", {{"x", saved}});
  const auto file = SafetensorsFile::open(folder / "m");
  EXPECT_TRUE(equal(file.tensor("x"), saved));
  const ArrayView view = file.view("x");
  EXPECT_EQ(view.dtype, GetParam());
  EXPECT_EQ(view.shape, saved.shape());
  EXPECT_EQ(std::memcmp(view.data, saved.data_ptr(), saved.nbytes()), 0);
}

INSTANTIATE_TEST_SUITE_P(Safetensors, EveryDType,
                         ::testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16,
                                           DType::i64, DType::i32, DType::u8, DType::boolean),
                         [](const auto& dtype) { return std::string(name(dtype.param)); });

TEST(Safetensors, WritesTheLayoutOfThePythonPackage) {
  const TemporaryFolder folder;
  save_safetensors(folder / "m",
                   {{"small", zeros({3}, {.dtype = DType::u8})},
                    {"b", zeros({2})},
                    {"a", zeros({2})},
                    {"wide", zeros({1}, {.dtype = DType::f64})}},
                   {{"by", "lock\"step\n"}});
  const auto file = SafetensorsFile::open(folder / "m");
  EXPECT_THAT(file.names(), ElementsAre("wide", "a", "b", "small"));
  EXPECT_EQ(file.metadata().at("by"), "lock\"step\n");
  const std::string bytes = read_file(folder / "m");
  EXPECT_EQ(static_cast<unsigned char>(bytes[0]) % 8, 0) << "the header is padded";
  EXPECT_TRUE(bytes.substr(8).starts_with(R"({"__metadata__":{"by":"lock\"step\n"},"wide":)"));
}

TEST(Safetensors, GivesAllTensorsOfAPrefix) {
  const TemporaryFolder folder;
  save_safetensors(folder / "m", {{"model.a", full({2}, 1.0)},
                                  {"model.b.c", full({3}, 2.0)},
                                  {"optimizer.a", full({2}, 3.0)}});
  const auto file = SafetensorsFile::open(folder / "m");
  const NamedTensors model = file.tensors("model.");
  ASSERT_EQ(model.size(), 2u);
  EXPECT_EQ(model[0].first, "a");
  EXPECT_TRUE(equal(model[0].second, full({2}, 1.0)));
  EXPECT_EQ(model[1].first, "b.c");
  EXPECT_TRUE(equal(model[1].second, full({3}, 2.0)));
  EXPECT_EQ(file.tensors().size(), 3u);
  EXPECT_TRUE(file.tensors("modell.").empty());
}

TEST(Safetensors, SavesViewsScalarsAndEmptyTensors) {
  const TemporaryFolder folder;
  const Tensor base = arange(12).reshape({3, 4});
  save_safetensors(folder / "m",
                   {{"t", base.transpose(0, 1)}, {"s", scalar(2.5)}, {"e", zeros({0, 5})}});
  const auto file = SafetensorsFile::open(folder / "m");
  EXPECT_TRUE(equal(file.tensor("t"), base.transpose(0, 1)));
  EXPECT_EQ(file.tensor("s").item(), 2.5);
  EXPECT_EQ(file.tensor("e").shape(), (Shape{0, 5}));
}

TEST(Safetensors, SavesAndReadsAFileWithoutTensors) {
  const TemporaryFolder folder;
  save_safetensors(folder / "m", {}, {{"k", "v"}});
  const auto file = SafetensorsFile::open(folder / "m");
  EXPECT_EQ(file.size(), 0u);
  EXPECT_EQ(file.metadata().at("k"), "v");
}

TEST(Safetensors, ReadsWhatWasThereBeforeTheFileWasReplaced) {
  const TemporaryFolder folder;
  save_safetensors(folder / "m", {{"x", ones({4})}});
  const auto old = SafetensorsFile::open(folder / "m");
  save_safetensors(folder / "m", {{"x", zeros({400})}});
  EXPECT_TRUE(equal(old.tensor("x"), ones({4})));
}

TEST(Safetensors, KeepsTheOldFileWhenTheDiskIsFull) {
  const TemporaryFolder folder;
  save_safetensors(folder / "m", {{"x", ones({4})}});
  file_calls.write = [](int, const void*, size_t) -> ssize_t { return errno = ENOSPC, -1; };
  EXPECT_THAT(
      [&] {
        save_safetensors(folder / "m", {{"x", zeros({4})}});
      },
      ThrowsMessage<FileError>(HasSubstr("No space left on device")));
  file_calls = {};
  EXPECT_TRUE(equal(SafetensorsFile::open(folder / "m").tensor("x"), ones({4})));
  EXPECT_EQ(folder.count(), 1);
}

TEST(Safetensors, RefusesToSaveWhatCouldNotBeReadBack) {
  const TemporaryFolder folder;
  const auto path = folder / "m";
  const Tensor x = ones({1});
  EXPECT_THAT(
      [&] {
        save_safetensors(path, {{"x", x}, {"y", x}, {"x", x}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("two tensors are named 'x'")));
  EXPECT_THROW(save_safetensors(path, {{"__metadata__", x}}), InvalidArgument);
  EXPECT_THROW(save_safetensors(path, {{"x", Tensor()}}), InvalidArgument);
  EXPECT_THROW(save_safetensors(path, {{"\xFF", x}}), InvalidArgument);
  EXPECT_THROW(save_safetensors(path, {{"x", x}}, {{"k", "\xC0"}}), InvalidArgument);
  EXPECT_EQ(folder.count(), 0);
}

TEST(Safetensors, NamesATensorThatIsNotThere) {
  const TemporaryFolder folder;
  save_safetensors(folder / "m", {{"x", ones({1})}});
  const auto file = SafetensorsFile::open(folder / "m");
  EXPECT_TRUE(file.contains("x"));
  EXPECT_FALSE(file.contains("y"));
  EXPECT_THAT([&] { file.tensor("y"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("has no tensor 'y'")));
}

TEST(Safetensors, RefusesTypesThatLockstepLacks) {
  const TemporaryFolder folder;
  const auto path =
      folder.write("m", one_tensor(R"("dtype":"U16","shape":[1],"data_offsets":[0,2])", "12"));
  const auto file = SafetensorsFile::open(path);
  EXPECT_THAT([&] { file.tensor("a"); }, ThrowsMessage<Unsupported>(HasSubstr("U16")));
}

TEST(Safetensors, CopiesButDoesNotViewUnalignedBytes) {
  const TemporaryFolder folder;
  std::string header = R"({"a":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}})";
  while (header.size() % 4 != 1) header += ' ';
  const auto path = folder.write("m", file_bytes(header) + std::string("\1\0\0\0", 4));
  const auto file = SafetensorsFile::open(path);
  EXPECT_THROW(file.view("a"), Unsupported);
  EXPECT_EQ(file.tensor("a").item(), 1);
}

TEST(Safetensors, RefusesTruthValuesOtherThan0And1) {
  const TemporaryFolder folder;
  const auto path =
      folder.write("m", one_tensor(R"("dtype":"BOOL","shape":[2],"data_offsets":[0,2])",
                                   std::string_view("\1\2", 2)));
  const auto file = SafetensorsFile::open(path);
  EXPECT_THAT([&] { file.view("a"); }, ThrowsMessage<CorruptData>(HasSubstr("byte 1 is 2")));
  EXPECT_THROW(file.tensor("a"), CorruptData);
}

#if defined(__SANITIZE_THREAD__)
constexpr std::int64_t sparse_size = std::int64_t{3} << 38;  // leaves no room for maps above 1.5 TB
#else
constexpr std::int64_t sparse_size = std::int64_t{3} << 40;
#endif

// A file of as close to 3 TB as the file system allows, all zeros after the given bytes.
std::filesystem::path sparse_file(const TemporaryFolder& folder, std::string_view start) {
  const auto path = folder.write("sparse", start);
  for (std::int64_t size = sparse_size; size >= std::int64_t{1} << 30; size /= 2)
    if (::truncate(path.c_str(), size) == 0) return path;
  throw std::runtime_error("the file system holds no sparse file of 1 GB");
}

TEST(Safetensors, RejectsPromisesInASparse3TerabyteFileWithLittleMemory) {
  const TemporaryFolder folder;
  const std::string headers[] = {
      length_bytes(std::uint64_t{1} << 32) + "{", length_bytes(std::uint64_t{1} << 41) + "{",
      length_bytes(max_safetensors_header) + "{",
      file_bytes(R"({"a":{"dtype":"F32","shape":[4294967296],"data_offsets":[0,17179869184]}})")};
  for (const auto& header : headers) {
    const auto path = sparse_file(folder, header);
    const std::int64_t before = resident_bytes();
    EXPECT_THROW(SafetensorsFile::open(path), CorruptData);
    EXPECT_LT(resident_bytes() - before, 16 << 20);
  }
}

TEST(Safetensors, ReadsATensorInASparseFileWithoutTouchingTheOthers) {
  const TemporaryFolder folder;
  const std::string start =
      R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[)";
  const std::string rest = R"(],"data_offsets":[4,)";
  const auto big = std::uint64_t{1} << 36;
  const std::string header = start + std::to_string(big) + rest + std::to_string(big + 4) + "]}}";
  const auto path = folder.write("m", file_bytes(header) + "\1\2\3\4");
  ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(8 + header.size() + 4 + big)), 0);
  const std::int64_t before = resident_bytes();
  const auto file = SafetensorsFile::open(path);
  EXPECT_EQ(file.tensor("a").sum().item(), 10);
  EXPECT_EQ(file.view("b").numel(), static_cast<std::int64_t>(big));
  EXPECT_LT(resident_bytes() - before, 16 << 20);
}

TEST(Safetensors, OpensFilesWithTypesThatItDoesNotRead) {
  const TemporaryFolder folder;
  const auto path = folder.write(
      "m", file_bytes(R"({"a":{"dtype":"F8_E4M3FNUZ","shape":[4],"data_offsets":[0,4]},)"
                      R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})") +
               "\1\2\3\4\5\6\7\10");
  const auto file = SafetensorsFile::open(path);
  EXPECT_EQ(file.tensor("b").sum().item(), 26);
  EXPECT_THROW(file.tensor("a"), Unsupported);
}

TEST(ShardedSafetensors, ASaveThatFailsLeavesTheOneBefore) {
  const TemporaryFolder folder;
  const std::vector<std::pair<std::string, Tensor>> first{{"a", ones({4})}, {"b", ones({4})}};
  save_sharded_safetensors(folder / ".", first, 16);
  const auto second = [&](const char* name, const Tensor& last) {
    const std::vector<std::pair<std::string, Tensor>> tensors{{"a", full({4}, 2.0)}, {name, last}};
    save_sharded_safetensors(folder / ".", tensors, 16);
  };
  EXPECT_THROW(second("b", Tensor()), InvalidArgument);
  EXPECT_THROW(second("a", ones({4})), InvalidArgument);  // in another file, all the same
  const auto saved = [&](const char* name) {
    return ShardedSafetensors::open(folder / ".").tensor(name).sum().item();
  };
  EXPECT_EQ(saved("a"), 4);
  EXPECT_EQ(saved("b"), 4);
  second("b", full({4}, 2.0));
  EXPECT_EQ(saved("a"), 8);
  EXPECT_EQ(saved("b"), 8);
}

}  // namespace
}  // namespace lockstep::io
