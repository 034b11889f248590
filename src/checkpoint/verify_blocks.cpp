#include "checkpoint/verify_blocks.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "checkpoint/contents.hpp"
#include "checkpoint/file_reader.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/crc32c.hpp"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

/// The state whose file it is; nothing for other files, and where what is damaged would tell.
std::optional<StemContents> stem_with(const fs::path& checkpoint, const Manifest& manifest,
                                      const std::string& file) {
  for (const std::string& stem : stems_of(manifest)) try {
      if (is_file_of(file, stem)) return read_stem(checkpoint, manifest, stem);
    } catch (const Error&) {
    }
  return std::nullopt;
}

}  // namespace

std::vector<Damage> verify_blocks(const fs::path& checkpoint, const Manifest& manifest,
                                  const FileRecord& record, std::size_t first, std::size_t last,
                                  From from, const std::function<bool(bool)>& goes_on) {
  const FileReader file(checkpoint / record.name);
  if (file.size() != record.size)
    return {{.file = record.name,
             .tensors = {},
             .where = detail::concat(file.size(), " bytes long instead of ", record.size)}};
  std::vector<Damage> damage;
  std::vector<std::byte> bytes;
  for (std::size_t block = first; block < last && goes_on(damage.empty()); ++block) {
    const std::uint64_t begin = block * block_bytes;
    bytes.resize(std::min(block_bytes, record.size - begin));
    if (from == From::disk) file.drop_cache(begin, bytes.size());
    file.read(begin, bytes);
    if (from == From::disk) file.drop_cache(begin, bytes.size());  // others may want the memory
    const std::uint32_t found = io::crc32c(bytes);
    if (found == record.checksums[block]) continue;
    const auto stem = stem_with(checkpoint, manifest, record.name);
    damage.push_back(damage_of(record, block, found, stem ? &*stem : nullptr));
  }
  return damage;
}

}  // namespace lockstep::checkpoint
