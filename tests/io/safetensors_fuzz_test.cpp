#include <random>

#include <gtest/gtest.h>

#include "fuzz.hpp"
#include "safetensors_bytes.hpp"

namespace lockstep::io {
namespace {

// Builds files that are nearly right: most of the grammar holds, one or more things are off.
class Fuzzer {
 public:
  explicit Fuzzer(std::uint64_t seed) : random_(seed) {}

  std::string next() {
    std::string header = object();
    for (int i = pick(4); i > 0 && pick(2); --i) damage(header);
    std::string file = file_bytes(header, data_bytes_);
    if (pick(8) == 0) file.replace(0, 8, length_bytes(number()));
    if (pick(8) == 0) file.resize(static_cast<std::size_t>(pick(static_cast<int>(file.size()))));
    if (pick(16) == 0) file += std::string(static_cast<std::size_t>(pick(9)), '\1');
    return file;
  }

 private:
  int pick(int count) {
    return count < 1 ? 0 : static_cast<int>(random_() % static_cast<unsigned>(count));
  }

  std::uint64_t number() {
    constexpr std::uint64_t edges[] = {0,   1,          2,          255,       256,        1u << 16,
                                       ~0u, 1ull << 32, 1ull << 61, INT64_MAX, 1ull << 63, ~0ull};
    return pick(2) ? edges[pick(12)] : random_() % 64;
  }

  std::string extent() {
    constexpr const char* odd[] = {"-1",
                                   "1.5",
                                   "1e3",
                                   "null",
                                   "\"2\"",
                                   "[2]",
                                   "{}",
                                   "true",
                                   "18446744073709551616",
                                   "-9223372036854775809"};
    if (pick(30) == 0) return odd[pick(10)];
    return std::to_string(pick(20) ? static_cast<std::uint64_t>(pick(5)) : number());
  }

  std::string entry() {
    constexpr const char* formats[] = {"F64", "F32", "BF16", "F16", "I64", "I32", "U8", "BOOL"};
    constexpr std::uint64_t sizes[] = {8, 4, 2, 2, 8, 4, 1, 1};
    const int format = pick(8);
    std::uint64_t bytes = sizes[format];
    std::string shape;
    for (int i = pick(4); i > 0; --i) {
      const std::string text = extent();
      shape += (shape.empty() ? "" : ",") + text;
      bytes *= std::strtoull(text.c_str(), nullptr, 10);
    }
    const std::uint64_t begin = pick(20) ? data_bytes_ : number();
    const std::uint64_t end = pick(20) ? begin + bytes : number();
    if (bytes < 4096) data_bytes_ += bytes;
    std::string text = std::string(R"({"dtype":")") + (pick(40) ? formats[format] : "X") +
                       R"(","shape":[)" + shape + R"(],"data_offsets":[)" + std::to_string(begin) +
                       "," + std::to_string(end) + "]}";
    return pick(40) ? text : "{" + text + "}";
  }

  std::string object() {
    data_bytes_ = 0;
    std::string text = "{";
    if (pick(3) == 0) text += R"("__metadata__":{"k":"v\u00e9"},)";
    for (int i = pick(5); i > 0; --i)
      text += "\"" + std::to_string(pick(30)) + "\":" + entry() + (i > 1 ? "," : "");
    return text + "}" + std::string(static_cast<std::size_t>(pick(8)), ' ');
  }

  void damage(std::string& text) {
    if (text.empty()) return;
    const auto at = static_cast<std::size_t>(pick(static_cast<int>(text.size())));
    constexpr std::string_view tokens = "{}[]\",:0-e\\\x80\xFF";
    switch (pick(4)) {
      case 0: text[at] = static_cast<char>(random_()); break;
      case 1: text.erase(at, static_cast<std::size_t>(pick(8))); break;
      case 2: text.insert(at, 1, tokens[static_cast<std::size_t>(pick(13))]); break;
      default:
        text.insert(at, text.substr(static_cast<std::size_t>(pick(static_cast<int>(text.size()))),
                                    static_cast<std::size_t>(pick(40))));
    }
  }

  std::mt19937_64 random_;
  std::uint64_t data_bytes_ = 0;
};

// What must hold of any file that was accepted, whatever its bytes.
void check_accepted(const SafetensorsHeader& header, std::size_t file_size) {
  std::uint64_t end = 0;
  for (const auto& entry : header.entries) {
    ASSERT_EQ(entry.begin, end);
    ASSERT_GE(entry.end, entry.begin);
    end = entry.end;
  }
  ASSERT_EQ(header.data_begin + end, file_size);
}

void fuzz_safetensors(std::uint64_t seed, int inputs) {
  Fuzzer fuzzer(seed);
  expect_accepted_or_named(
      inputs, [&] { return fuzzer.next(); },
      [](const std::string& file) { check_accepted(parse(file), file.size()); });
}

TEST(SafetensorsFuzz, EveryInputIsAcceptedOrNamedCorrupt) { fuzz_safetensors(1, 20'000); }
TEST(SafetensorsFuzz, SlowMillionInputs) { fuzz_safetensors(2, 1'000'000); }

}  // namespace
}  // namespace lockstep::io
