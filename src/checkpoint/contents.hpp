#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/layout.hpp"
#include "checkpoint/manifest.hpp"
#include "lockstep/checkpoint/folder.hpp"

/// @file
/// What lies in a checkpoint that exists.

namespace lockstep::checkpoint {

/// Reads the manifest of a checkpoint. @throws io::FileError, CorruptData, Unsupported.
Manifest read_manifest(const std::filesystem::path& checkpoint);
/// The same as text. @throws io::FileError, CorruptData.
std::string read_manifest_text(const std::filesystem::path& checkpoint);

/// Reads a small file whole and compares it with its record.
/// @throws io::FileError, CorruptData.
std::string read_checked(const std::filesystem::path& checkpoint, const FileRecord& record);
/// Reads what a checkpoint has of values, which `parse_state_file` takes. @throws like
/// `read_checked`; CorruptData if there is none.
std::string read_state_text(const std::filesystem::path& checkpoint, const Manifest& manifest);

/// Files of tensors of one state, and where these lie. Numbers of files are those of `files`.
struct StemContents {
  std::vector<FileRecord> files;
  std::vector<std::uint64_t> data_begin;  ///< in each file
  std::vector<PlannedTensor> tensors;     ///< in the order of their bytes
};

/// Of its files, in bytes.
std::vector<std::uint64_t> sizes_of(const StemContents& contents);

/// What a state's files begin with, in the order of the manifest.
/// @throws InvalidArgument if the checkpoint has no such state; io::FileError, CorruptData.
std::vector<std::string> read_headers(const std::filesystem::path& checkpoint,
                                      const Manifest& manifest, std::string_view stem);

/// What the headers of a state's files say. @throws CorruptData, Unsupported.
StemContents contents_of(const std::filesystem::path& checkpoint, const Manifest& manifest,
                         std::string_view stem, std::span<const std::string> headers);

/// Both.
StemContents read_stem(const std::filesystem::path& checkpoint, const Manifest& manifest,
                       std::string_view stem);

/// The names of the states that have files of tensors.
std::vector<std::string> stems_of(const Manifest& manifest);

/// Whether a file is one of a state's: "model-00001-of-00002.safetensors" of "model".
bool is_file_of(std::string_view file, std::string_view stem);

/// What is wrong with a block of a file whose checksum is not that of its record.
/// @param stem whose file it is; null for others.
Damage damage_of(const FileRecord& record, std::size_t block, std::uint32_t found,
                 const StemContents* stem);

}  // namespace lockstep::checkpoint
