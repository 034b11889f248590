#include "checkpoint/read_back.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "checkpoint/contents.hpp"
#include "checkpoint/exchange.hpp"
#include "checkpoint/file_reader.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/names.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/crc32c.hpp"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

/// @throws CorruptData for damage; io::FileError.
void check_part(const fs::path& checkpoint, const Manifest& manifest, int rank, int size,
                Throttle& throttle) {
  std::vector<std::byte> bytes;
  std::size_t number = 0;  // of a block, over all files
  for (const FileRecord& record : manifest.files) {
    const FileReader file(checkpoint / record.name);
    LOCKSTEP_CHECK(file.size() == record.size, CorruptData, record.name, " is ", file.size(),
                   " bytes long instead of ", record.size);
    for (std::size_t block = 0; block < record.checksums.size(); ++block, ++number) {
      if (number % static_cast<std::size_t>(size) != static_cast<std::size_t>(rank)) continue;
      const double before = processor_seconds();
      bytes.resize(std::min(block_bytes, record.size - block * block_bytes));
      file.read(block * block_bytes, bytes);
      const std::uint32_t found = io::crc32c(bytes);
      LOCKSTEP_CHECK(found == record.checksums[block], CorruptData,
                     describe(damage_of(record, block, found, nullptr)));
      throttle.spend(processor_seconds() - before);
      throttle.rest();
    }
  }
}

}  // namespace

std::string read_back(comm::Communicator& group, const fs::path& checkpoint,
                      const std::string& manifest, Throttle& throttle) {
  const std::string own = error_of([&] {
    check_part(checkpoint, parse_manifest(manifest, (checkpoint / manifest_name).string()),
               group.rank(), group.size(), throttle);
  });
  return agree(group, own, "a checkpoint is read back");
}

}  // namespace lockstep::checkpoint
