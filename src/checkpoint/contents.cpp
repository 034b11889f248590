#include "checkpoint/contents.hpp"

#include <algorithm>
#include <cerrno>
#include <span>

#include "checkpoint/file_reader.hpp"
#include "checkpoint/names.hpp"
#include "io/in_quotes.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/crc32c.hpp"
#include "lockstep/io/safetensors_header.hpp"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view suffix = ".safetensors", middle = "-of-";
constexpr std::size_t number_length = 5;

bool is_number(std::string_view text) {
  return text.size() >= number_length &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

/// "model" of "model-00001-of-00002.safetensors"; empty for other names.
std::string_view stem_of(std::string_view file) {
  if (!file.ends_with(suffix)) return {};
  file.remove_suffix(suffix.size());
  const std::size_t of = file.rfind(middle);
  if (of == std::string_view::npos || !is_number(file.substr(of + middle.size()))) return {};
  file = file.substr(0, of);
  const std::size_t dash = file.rfind('-');
  if (dash == std::string_view::npos || !is_number(file.substr(dash + 1))) return {};
  return file.substr(0, dash);
}

constexpr std::uint64_t longest_text = std::uint64_t{1} << 30;

std::string read_text(const fs::path& path) {
  const FileReader reader(path);
  LOCKSTEP_CHECK(reader.size() <= longest_text, CorruptData, path.string(), " is ", reader.size(),
                 " bytes long; at most ", longest_text, " are read");
  std::string text(reader.size(), '\0');
  reader.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

std::string read_header(const fs::path& path, std::uint64_t size) {
  // Not mapped: a page that the disk cannot read would be a signal.
  const FileReader file(path);
  LOCKSTEP_CHECK(file.size() == size, CorruptData, path.string(), " is ", file.size(),
                 " bytes long instead of ", size);
  std::string header(std::min<std::uint64_t>(size, sizeof(std::uint64_t)), '\0');
  file.read(0, std::as_writable_bytes(std::span(header)));
  std::uint64_t length = 0;
  for (std::size_t i = header.size(); i-- > 0;)
    length = length << 8 | static_cast<unsigned char>(header[i]);
  const std::size_t begun = header.size();
  header.resize(std::min(size, sizeof length + std::min(length, io::max_safetensors_header)));
  file.read(begun, std::as_writable_bytes(std::span(header)).subspan(begun));
  return header;
}

std::vector<FileRecord> files_of(const Manifest& manifest, std::string_view stem) {
  std::vector<FileRecord> files;
  for (const FileRecord& file : manifest.files)
    if (is_file_of(file.name, stem)) files.push_back(file);
  return files;
}

}  // namespace

bool is_file_of(std::string_view file, std::string_view stem) { return stem_of(file) == stem; }

std::vector<std::string> stems_of(const Manifest& manifest) {
  std::vector<std::string> stems;
  for (const FileRecord& file : manifest.files) {
    const std::string stem(stem_of(file.name));
    if (!stem.empty() && std::ranges::find(stems, stem) == stems.end()) stems.push_back(stem);
  }
  return stems;
}

std::string read_manifest_text(const fs::path& checkpoint) {
  return read_text(checkpoint / manifest_name);
}

Manifest read_manifest(const fs::path& checkpoint) {
  return parse_manifest(read_manifest_text(checkpoint), (checkpoint / manifest_name).string());
}

std::string read_checked(const fs::path& checkpoint, const FileRecord& record) {
  const fs::path path = checkpoint / record.name;
  const std::string text = read_text(path);
  LOCKSTEP_CHECK(text.size() == record.size, CorruptData, path.string(), " is ", text.size(),
                 " bytes long instead of ", record.size);
  for (std::size_t block = 0; block < record.checksums.size(); ++block) {
    const auto bytes = std::string_view(text).substr(block * block_bytes, block_bytes);
    const std::uint32_t found = io::crc32c(std::as_bytes(std::span(bytes)));
    LOCKSTEP_CHECK(found == record.checksums[block], CorruptData, checkpoint.string(), ": ",
                   describe(damage_of(record, block, found, nullptr)));
  }
  return text;
}

std::string read_state_text(const fs::path& checkpoint, const Manifest& manifest) {
  const auto state = std::ranges::find(manifest.files, state_name, &FileRecord::name);
  LOCKSTEP_CHECK(state != manifest.files.end(), CorruptData, checkpoint.string(), " has no ",
                 state_name);
  return read_checked(checkpoint, *state);
}

std::vector<std::uint64_t> sizes_of(const StemContents& contents) {
  std::vector<std::uint64_t> sizes;
  for (const FileRecord& file : contents.files) sizes.push_back(file.size);
  return sizes;
}

std::vector<std::string> read_headers(const fs::path& checkpoint, const Manifest& manifest,
                                      std::string_view stem) {
  const std::vector<FileRecord> files = files_of(manifest, stem);
  LOCKSTEP_CHECK(!files.empty() || std::ranges::any_of(manifest.files,
                                                       [&](const FileRecord& file) {
                                                         return file.name ==
                                                                detail::concat(stem, index_suffix);
                                                       }),
                 InvalidArgument, checkpoint.string(), " has no ", io::in_quotes(stem),
                 ": it was saved without");
  std::vector<std::string> headers;
  for (const FileRecord& file : files)
    headers.push_back(read_header(checkpoint / file.name, file.size));
  return headers;
}

StemContents contents_of(const fs::path& checkpoint, const Manifest& manifest,
                         std::string_view stem, std::span<const std::string> headers) {
  StemContents contents{.files = files_of(manifest, stem), .data_begin = {}, .tensors = {}};
  LOCKSTEP_CHECK(headers.size() == contents.files.size(), CorruptData, checkpoint.string(), ": ",
                 headers.size(), " headers of the ", contents.files.size(), " files of ",
                 io::in_quotes(stem));
  for (std::size_t i = 0; i < contents.files.size(); ++i) {
    const fs::path path = checkpoint / contents.files[i].name;
    const io::SafetensorsHeader header = io::parse_safetensors_header(
        std::as_bytes(std::span(headers[i])), contents.files[i].size, path.string());
    contents.data_begin.push_back(header.data_begin);
    for (const io::SafetensorsEntry& entry : header.entries) {
      const auto dtype = io::dtype_of_format(entry.format);
      LOCKSTEP_CHECK(dtype, Unsupported, path.string(), ": tensor ", io::in_quotes(entry.name),
                     " has dtype ", entry.format, ", which lockstep has no type for");
      contents.tensors.push_back({.spec = {entry.name, *dtype, entry.shape},
                                  .file = i,
                                  .offset = header.data_begin + entry.begin,
                                  .bytes = entry.end - entry.begin});
    }
  }
  return contents;
}

StemContents read_stem(const fs::path& checkpoint, const Manifest& manifest,
                       std::string_view stem) {
  return contents_of(checkpoint, manifest, stem, read_headers(checkpoint, manifest, stem));
}

Damage damage_of(const FileRecord& record, std::size_t block, std::uint32_t found,
                 const StemContents* stem) {
  std::uint64_t begin = block * block_bytes, end = std::min(begin + block_bytes, record.size);
  Damage damage{.file = record.name,
                .tensors = {},
                .where = detail::concat("bytes ", begin, " to ", end - 1)};
  if (const auto bit = io::find_flipped_bit(record.checksums[block], found, end - begin)) {
    begin += bit->byte;
    end = begin + 1;
    damage.where = detail::concat("bit ", bit->bit, " of byte ", begin);
  }
  if (stem)
    for (const PlannedTensor& tensor : stem->tensors)
      if (stem->files[tensor.file].name == record.name && tensor.offset < end &&
          tensor.offset + tensor.bytes > begin)
        damage.tensors.push_back(tensor.spec.name);
  return damage;
}

}  // namespace lockstep::checkpoint
