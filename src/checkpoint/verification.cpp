#include "checkpoint/verification.hpp"

#include <string>
#include <string_view>
#include <system_error>

#include "checkpoint/names.hpp"
#include "checkpoint/small_file.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/file_error.hpp"

namespace lockstep::checkpoint {
namespace {

namespace fs = std::filesystem;

std::string text_of(std::string_view found, const Manifest& manifest) {
  return detail::concat(found, ": save ", manifest.save, " of generation ", manifest.generation);
}

}  // namespace

Verification noted_verification(const fs::path& checkpoint, const Manifest& manifest) {
  const auto text = read_with_checksum(checkpoint / verification_name);
  if (text == text_of("whole", manifest)) return Verification::whole;
  if (text == text_of("damaged", manifest)) return Verification::damaged;
  return Verification::unknown;
}

void note_verification(const fs::path& checkpoint, const Manifest& manifest, Verification found) {
  if (noted_verification(checkpoint, manifest) == found) return;
  const fs::path note = checkpoint / verification_name;
  if (found == Verification::unknown) {
    std::error_code error;
    fs::remove(note, error);
    if (error) throw io::FileError("unlink", note, error.value());
    return;
  }
  write_with_checksum(note, text_of(found == Verification::whole ? "whole" : "damaged", manifest));
}

}  // namespace lockstep::checkpoint
