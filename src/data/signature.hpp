#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/fnv_hash.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// Numbers by which data sets and orders of samples are told from others.

namespace lockstep::data {

/// Of a kind of thing and what it follows from.
template <class... Numbers>
std::uint64_t signature_of(std::string_view kind, Numbers... numbers) {
  std::string text(kind);
  ((text += ' ', text += std::to_string(numbers)), ...);
  return lockstep::detail::fnv_hash(text.data(), text.size());
}

/// Of the number of bytes, and of all of them up to 64 MiB; of more, of 1024 blocks of 4 KiB from
/// all over, so that a change is found which covers a thousandth of them in a row. Takes up to
/// 20 ms where the bytes are in memory.
std::uint64_t signature_of_bytes(std::span<const std::byte> bytes);

/// Of a contiguous tensor on the CPU: its shape, its dtype and its bytes as above.
std::uint64_t signature_of_tensor(const Tensor& tensor);

}  // namespace lockstep::data
