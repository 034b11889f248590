#include "checkpoint/manifest.hpp"

#include <algorithm>
#include <charconv>
#include <span>

#include <nlohmann/json.hpp>

#include "checkpoint/json.hpp"
#include "io/in_quotes.hpp"
#include "io/shallow_json.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/crc32c.hpp"

namespace lockstep::checkpoint {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view manifest_format = "lockstep checkpoint";
constexpr int format_version = 1;
constexpr std::size_t digits = 8;  // of a checksum

std::string hexadecimal(std::uint32_t checksum) {
  std::string text(digits, '0');
  for (std::size_t i = 0; i < digits; ++i)
    text[i] = "0123456789abcdef"[checksum >> 4 * (digits - 1 - i) & 0xF];
  return text;
}

std::uint32_t checksum_of(std::string_view text) {
  return io::crc32c(std::as_bytes(std::span(text)));
}

ordered_json json_of(const FileRecord& file) {
  std::string checksums;
  for (const std::uint32_t each : file.checksums) checksums += hexadecimal(each);
  return {{"name", file.name}, {"size", file.size}, {"crc32c", checksums}};
}

// All but the checksum of itself.
ordered_json json_of(const Manifest& manifest) {
  ordered_json files = ordered_json::array();
  for (const FileRecord& file : manifest.files) files.push_back(json_of(file));
  ordered_json json{{"format", manifest_format},
                    {"format_version", format_version},
                    {"lockstep_version", manifest.version},
                    {"step", manifest.step},
                    {"world_size", manifest.world_size},
                    {"generation", manifest.generation}};
  if (manifest.save > 0) json["save"] = manifest.save;
  json["metric"] = manifest.metric ? ordered_json(*manifest.metric) : ordered_json();
  json["block_bytes"] = block_bytes;
  json["files"] = files;
  return json;
}

std::vector<std::uint32_t> parse_checksums(std::string_view text) {
  std::vector<std::uint32_t> checksums;
  for (; !text.empty(); text.remove_prefix(digits)) {
    const std::string_view part = text.substr(0, digits);
    const auto end = part.data() + part.size();
    std::uint32_t checksum = 0;
    const auto parsed = std::from_chars(part.data(), end, checksum, 16);
    if (part.size() < digits || parsed.ec != std::errc() || parsed.ptr != end)
      LOCKSTEP_THROW(CorruptData, io::in_quotes(std::string(part)), " is no checksum");
    checksums.push_back(checksum);
  }
  return checksums;
}

// A name could lead out of the checkpoint's folder.
void check_name(const std::string& name) {
  LOCKSTEP_CHECK(!name.empty() && name != "." && name != ".." &&
                     name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos,
                 CorruptData, io::in_quotes(name), " is no name of a file in a folder");
}

FileRecord parse_file(const ordered_json& json) {
  FileRecord file{.name = json.at("name").get<std::string>(),
                  .size = json.at("size").get<std::uint64_t>(),
                  .checksums = parse_checksums(json.at("crc32c").get<std::string>())};
  check_name(file.name);
  const std::uint64_t blocks = file.size / block_bytes + (file.size % block_bytes != 0);
  LOCKSTEP_CHECK(file.checksums.size() == blocks, CorruptData, file.name, " has ", file.size,
                 " bytes and ", file.checksums.size(), " checksums, not one for each ", block_bytes,
                 " bytes");
  return file;
}

Manifest parse(const ordered_json& json) {
  LOCKSTEP_CHECK(json.at("format") == manifest_format, CorruptData,
                 "it is no manifest of a checkpoint");
  ordered_json rest = json;
  rest.erase("crc32c");  // so that a flipped bit is not taken for another version
  LOCKSTEP_CHECK(json.at("crc32c") == hexadecimal(checksum_of(rest.dump())), CorruptData,
                 "its checksum is wrong");
  LOCKSTEP_CHECK(
      json.at("format_version") == format_version && json.at("block_bytes") == block_bytes,
      Unsupported, "its format has version ", json.at("format_version").dump(),
      "; this build of lockstep reads version ", format_version);
  Manifest manifest{.step = json.at("step").get<std::int64_t>(),
                    .world_size = json.at("world_size").get<int>(),
                    .generation = json.at("generation").get<std::uint64_t>(),
                    .save = json.value("save", std::uint64_t{0}),
                    .version = json.at("lockstep_version").get<std::string>(),
                    .metric = {},
                    .files = {}};
  if (!json.at("metric").is_null()) manifest.metric = json.at("metric").get<double>();
  for (const ordered_json& file : json.at("files")) manifest.files.push_back(parse_file(file));
  std::vector<std::string_view> names;
  for (const FileRecord& file : manifest.files) names.push_back(file.name);
  std::ranges::sort(names);
  LOCKSTEP_CHECK(std::ranges::adjacent_find(names) == names.end(), CorruptData,
                 "it names a file twice");
  return manifest;
}

}  // namespace

std::string write_manifest(const Manifest& manifest) {
  ordered_json json = json_of(manifest);
  const std::string own = hexadecimal(checksum_of(json.dump()));
  json["crc32c"] = own;
  return json.dump(1) + "\n";
}

Manifest parse_manifest(std::string_view text, std::string_view source) {
  Manifest manifest;
  try {
    manifest = parse(io::parse_shallow_json<ordered_json>(text));
  } catch (const nlohmann::json::exception& error) {
    LOCKSTEP_THROW(CorruptData, source, " ", describe(error, text));
  } catch (const CorruptData& error) {
    LOCKSTEP_THROW(CorruptData, source, ": ", error.what());
  } catch (const Unsupported& error) {
    LOCKSTEP_THROW(Unsupported, source, ": ", error.what());
  }
  LOCKSTEP_CHECK(write_manifest(manifest) == text, CorruptData, source,
                 ": something was added or changed");
  return manifest;
}

}  // namespace lockstep::checkpoint
