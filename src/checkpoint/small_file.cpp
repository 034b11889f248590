#include "checkpoint/small_file.hpp"

#include <algorithm>
#include <cstdint>
#include <iomanip>
#include <span>
#include <sstream>
#include <system_error>

#include "checkpoint/file_reader.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/io/crc32c.hpp"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

std::string with_checksum(std::string_view text) {
  lockstep::detail::TextStream out;
  out << text << "\ncrc32c " << std::hex << std::setfill('0') << std::setw(8)
      << io::crc32c(std::as_bytes(std::span(text))) << "\n";
  return out.str();
}

}  // namespace

std::string read_small_checked(const fs::path& path) {
  const FileReader file(path);
  std::string text(std::min<std::uint64_t>(file.size(), 4096), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

std::string read_small(const fs::path& path) {
  try {
    return read_small_checked(path);
  } catch (const Error&) {
    return {};
  }
}

void write_with_checksum(const fs::path& path, std::string_view text) {
  std::error_code ignored;
  if (fs::is_symlink(fs::symlink_status(path, ignored)))
    fs::remove(path, ignored);  // what it leads to is somebody else's
  io::AtomicFile file(path);
  file.write(with_checksum(text));
  file.commit();
}

std::optional<std::string> read_with_checksum(const fs::path& path) {
  const std::string all = read_small(path);
  std::string text = all.substr(0, all.find('\n'));
  if (all != with_checksum(text)) return std::nullopt;
  return text;
}

}  // namespace lockstep::checkpoint
