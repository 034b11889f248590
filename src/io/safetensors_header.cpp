#include "lockstep/io/safetensors_header.hpp"

#include <algorithm>
#include <cstring>

#include "io/checked_size.hpp"
#include "io/safetensors_sax.hpp"

namespace lockstep::io {
namespace {

struct Format {
  std::string_view name;
  std::uint64_t bytes;  // of `elements`
  std::optional<DType> dtype;
  std::uint64_t elements = 1;
};

// All types of the format. Files that hold one lockstep lacks still open: only reading
// that tensor is refused.
constexpr Format formats[] = {{"F64", 8, DType::f64},
                              {"F32", 4, DType::f32},
                              {"BF16", 2, DType::bf16},
                              {"F16", 2, DType::f16},
                              {"I64", 8, DType::i64},
                              {"I32", 4, DType::i32},
                              {"U8", 1, DType::u8},
                              {"BOOL", 1, DType::boolean},
                              {"I8", 1, {}},
                              {"I16", 2, {}},
                              {"U16", 2, {}},
                              {"U32", 4, {}},
                              {"U64", 8, {}},
                              {"C64", 8, {}},
                              {"F8_E4M3", 1, {}},
                              {"F8_E5M2", 1, {}},
                              {"F8_E4M3FNUZ", 1, {}},
                              {"F8_E5M2FNUZ", 1, {}},
                              {"F8_E8M0", 1, {}},
                              {"F6_E2M3", 3, {}, 4},
                              {"F6_E3M2", 3, {}, 4},
                              {"F4", 1, {}, 2}};

const Format* find_format(std::string_view name) {
  const auto* found = std::ranges::find(formats, name, &Format::name);
  return found == std::end(formats) ? nullptr : found;
}

/// A file that is often given in place of a safetensors file, and how to get one from it.
struct OtherFormat {
  std::string_view start, name, advice;
};

constexpr std::string_view convert =
    "load it in Python and save its state_dict with safetensors.torch.save_file";
constexpr OtherFormat other_formats[] = {
    {"PK\x03\x04", "a zip archive, as torch.save writes it (.pt, .pth, .bin)", convert},
    {"\x80\x02", "a Python pickle, as torch.save wrote it before version 1.6", convert},
    {"\x80\x03", "a Python pickle", convert},
    {"\x80\x04", "a Python pickle", convert},
    {"\x80\x05", "a Python pickle", convert},
    {"\x89HDF", "an HDF5 file", convert},
    {"\x93NUMPY", "a NumPy array", convert},
    {"GGUF", "a GGUF file", "take the model's safetensors file"},
    {"version https://git-lfs", "a Git LFS pointer, not the file itself", "run 'git lfs pull'"}};

// A length of few digits may start like another format: the ninth byte tells, as '{' is always
// there in a safetensors file and never in these.
void refuse_other_formats(std::span<const std::byte> file, std::string_view source) {
  if (file[8] == std::byte{'{'}) return;
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  for (const auto& other : other_formats)
    LOCKSTEP_CHECK(!text.starts_with(other.start), CorruptData, source,
                   ": not a safetensors file but ", other.name, "; ", other.advice);
}

// The JSON text of the header.
std::string_view header_text(std::span<const std::byte> file, std::string_view source) {
  LOCKSTEP_CHECK(file.size() >= 8, CorruptData, source, ": ", file.size(),
                 " bytes are too few for a safetensors file, which starts with 8 bytes of length");
  if (file.size() > 8) refuse_other_formats(file, source);
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i)
    length = length << 8 | std::to_integer<std::uint64_t>(file[static_cast<std::size_t>(i)]);
  LOCKSTEP_CHECK(
      length <= max_safetensors_header, CorruptData, source,
      ": not a safetensors file, or a damaged one: its first 8 bytes promise a header of ", length,
      " bytes; at most ", max_safetensors_header, " are allowed");
  LOCKSTEP_CHECK(
      length <= file.size() - 8, CorruptData, source,
      ": a safetensors file that was cut off, or none: its first 8 bytes promise a header of ",
      length, " bytes, but only ", file.size() - 8, " bytes follow");
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, length);
  LOCKSTEP_CHECK(text.starts_with('{'), CorruptData, source,
                 ": not a safetensors file: the header at offset 8 does not start with '{'");
  // The JSON parser takes a NUL byte for the end of its input and would not see what follows.
  const auto nul = text.find('\0');
  LOCKSTEP_CHECK(nul == text.npos, CorruptData, source, ": NUL byte in the header at offset ",
                 nul + 8);
  return text;
}

// Checks that the offsets' distance is what dtype and shape make.
void check_size(const SafetensorsEntry& entry, std::string_view source) {
  const Format* format = find_format(entry.format);
  LOCKSTEP_CHECK(format, CorruptData, source, ": tensor ", in_quotes(entry.name),
                 " has the unknown dtype ", in_quotes(entry.format));
  auto bytes = checked_bytes(entry.shape, format->bytes);
  LOCKSTEP_CHECK(!bytes || *bytes % format->elements == 0, CorruptData, source, ": tensor ",
                 in_quotes(entry.name), " of shape ", entry.shape, " and dtype ", entry.format,
                 " does not end with a whole byte");
  if (bytes) *bytes /= format->elements;
  LOCKSTEP_CHECK(bytes, CorruptData, source, ": tensor ", in_quotes(entry.name), " of shape ",
                 entry.shape, " would have 2^63 bytes or more");
  LOCKSTEP_CHECK(entry.begin <= entry.end && entry.end - entry.begin == *bytes, CorruptData, source,
                 ": tensor ", in_quotes(entry.name), " of shape ", entry.shape, " and dtype ",
                 entry.format, " takes ", *bytes, " bytes, but its data_offsets are [", entry.begin,
                 ", ", entry.end, "]");
}

// Checks that the tensors follow one another from the first byte of data to the last.
void check_layout(const SafetensorsHeader& header, std::uint64_t data_bytes,
                  std::string_view source) {
  std::uint64_t expected = 0;
  for (const auto& entry : header.entries) {
    LOCKSTEP_CHECK(entry.begin == expected, CorruptData, source, ": tensor ", in_quotes(entry.name),
                   " starts at data offset ", entry.begin,
                   entry.begin < expected ? ", inside another one; " : ", after a hole; ", expected,
                   " would be right");
    expected = entry.end;
  }
  LOCKSTEP_CHECK(expected == data_bytes, CorruptData, source, ": the header describes ", expected,
                 " bytes of data, but ", data_bytes, " bytes follow it: the file ",
                 expected > data_bytes ? "is truncated" : "has trailing bytes");
}

}  // namespace

std::optional<DType> dtype_of_format(std::string_view format) {
  const Format* found = find_format(format);
  return found ? found->dtype : std::nullopt;
}

std::string_view format_of_dtype(DType dtype) {
  return std::ranges::find(formats, std::optional(dtype), &Format::dtype)->name;
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                           std::string_view source) {
  return parse_safetensors_header(file, file.size(), source);
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> beginning, std::uint64_t size,
                                           std::string_view source) {
  const std::string_view text = header_text(beginning, source);
  SafetensorsHeader header;
  SafetensorsSax sax(header, source);
  nlohmann::json::sax_parse(text.begin(), text.end(), &sax);
  header.data_begin = 8 + text.size();
  for (const auto& entry : header.entries) check_size(entry, source);
  std::ranges::sort(header.entries, [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  check_layout(header, size - header.data_begin, source);
  return header;
}

}  // namespace lockstep::io
