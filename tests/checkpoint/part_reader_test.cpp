#include "checkpoint/part_reader.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <vector>

#include <gtest/gtest.h>

#include "io/file_calls.hpp"
#include "io/file_descriptor.hpp"
#include "support/temporary_folder.hpp"

// How a rank reads its part of a checkpoint.

namespace lockstep::checkpoint {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

/// What the system was told will be read, and how far ahead of what is.
struct Advice {
  static inline std::mutex mutex;
  static inline std::uint64_t longest, advised, read, farthest;

  Advice() {
    longest = advised = read = farthest = 0;
    io::file_calls.advise = [](int, off_t offset, off_t size, int) {
      const std::lock_guard lock(mutex);
      const auto begin = static_cast<std::uint64_t>(offset),
                 end = begin + static_cast<std::uint64_t>(size);
      longest = std::max(longest, end - begin);
      advised += end - begin;
      farthest = std::max(farthest, end - std::min(end, read));
      return 0;
    };
    io::file_calls.pread = [](int file, void* data, size_t size, off_t offset) -> ssize_t {
      if ((::fcntl(file, F_GETFL) & O_DIRECT) != 0) {
        errno = EOPNOTSUPP;
        return -1;
      }
      {
        const std::lock_guard lock(mutex);
        read = std::max(read, static_cast<std::uint64_t>(offset) + size);
      }
      return ::pread(file, data, size, offset);
    };
  }
  ~Advice() { io::file_calls = {}; }
};

TEST(PartReader, AsksForShortPiecesNotFarAheadWhereThePageCacheIsTheWay) {
  const testing::TemporaryFolder folder;
  constexpr std::uint64_t bytes = 48 * mib;
  std::ofstream(folder / "file").put('x');
  std::filesystem::resize_file(folder / "file", bytes);
  Reading reading{};
  reading.contents.files.push_back({.name = "file", .size = bytes, .checksums = {}});
  std::vector<std::byte> memory(bytes);
  const std::span<std::byte> all(memory);
  // A small part, and one that is more than is asked for at a time.
  std::vector<PartOfFile> parts{{0, 0, 0, all.first(3 * mib), nullptr, 0},
                                {0, 0, 3 * mib, all.subspan(3 * mib), nullptr, 1}};
  const Advice advice;
  PartReader reader(folder.path(), {&reading, 1}, parts, false, {});
  reader.sums();
  EXPECT_EQ(memory[0], std::byte{'x'});
  EXPECT_LE(Advice::longest, 256 * 1024);  // or a system follows but its beginning
  EXPECT_LE(Advice::farthest, 36 * mib);
  EXPECT_GE(Advice::advised, bytes - 36 * mib);
  EXPECT_LE(Advice::advised, bytes);
}

TEST(PartReader, ReadsPartsThatLieAnyhowAndKeepsWhatWasThere) {
  const testing::TemporaryFolder folder;
  std::vector<char> text(std::size_t{3} << 20);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 2654435761U >> 13);
  std::ofstream(folder / "file", std::ios::binary)
      .write(text.data(), static_cast<std::streamsize>(text.size()));
  Reading reading{};
  reading.contents.files.push_back({.name = "file", .size = text.size(), .checksums = {}});
  for (const bool is_cached : {true, false}) {
    if (!is_cached) {
      const io::FileDescriptor file(::open((folder / "file").c_str(), O_RDWR));
      ASSERT_EQ(::fsync(file.get()), 0);
      FileReader(folder / "file").drop_cache(0, text.size());
    }
    for (const std::size_t begin : {0, 1, 4095, 5000}) {
      const std::size_t bytes = text.size() - begin - begin % 3;
      std::vector<std::byte> memory(bytes, std::byte{7}), former(bytes);
      {
        std::vector<FormerValues> kept(1);
        PartReader reader(folder.path(), {&reading, 1}, {{0, 0, begin, memory, former.data(), 0}},
                          false, kept);
        reader.sums();
        EXPECT_EQ(std::memcmp(memory.data(), text.data() + begin, bytes), 0) << begin;
      }
      EXPECT_EQ(memory, std::vector<std::byte>(bytes, std::byte{7})) << begin;
    }
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
