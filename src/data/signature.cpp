#include "data/signature.hpp"

#include <algorithm>

#include "lockstep/data/dataset.hpp"

namespace lockstep::data {

std::uint64_t signature_of_bytes(std::span<const std::byte> bytes) {
  constexpr std::size_t pieces = 16, length = 64;
  std::uint64_t hash = bytes.size();
  for (std::size_t piece = 0; piece < pieces; ++piece) {
    const std::size_t begin = bytes.size() / pieces * piece;
    const auto part = bytes.subspan(begin, std::min(length, bytes.size() - begin));
    hash = signature_of("bytes", hash, lockstep::detail::fnv_hash(part.data(), part.size()));
  }
  return hash;
}

std::uint64_t signature_of_tensor(const Tensor& tensor) {
  std::uint64_t signature = signature_of(
      "tensor", static_cast<int>(tensor.dtype()),
      signature_of_bytes({static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}));
  for (const std::int64_t size : tensor.shape()) signature = signature_of("of", signature, size);
  return signature;
}

std::uint64_t order_signature(std::int64_t size, std::uint64_t signature, std::uint64_t order) {
  return std::max<std::uint64_t>(1, signature_of("data", size, signature, order));
}

}  // namespace lockstep::data
