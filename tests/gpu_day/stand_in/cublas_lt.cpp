// cublasLt for the pretended GPU: products with an optional bias, in the plain order of columns.

#include <cublasLt.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "product.h"

using namespace stand_in;

namespace {

// What describes a product or a matrix for cublasLt: values by the number of their attribute.
struct Described {
  std::map<int, std::vector<char>> values;

  void set(int attribute, const void* value, std::size_t bytes) {
    const auto* const begin = static_cast<const char*>(value);
    values[attribute].assign(begin, begin + bytes);
  }

  template <class T>
  T get(int attribute, T otherwise) const {
    const auto found = values.find(attribute);
    if (found != values.end()) {
      std::memcpy(&otherwise, found->second.data(), std::min(sizeof(T), found->second.size()));
    }
    return otherwise;
  }
};

Matrix matrix_of(const void* data, const void* layout, bool is_transposed = false) {
  const Described& all = *static_cast<const Described*>(layout);
  return {data, all.get(CUBLASLT_MATRIX_LAYOUT_TYPE, CUDA_R_32F), all.get(CUBLASLT_MATRIX_LAYOUT_LD, std::int64_t{0}),
          all.get(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, std::int64_t{0}), is_transposed};
}

std::int64_t extent_of(const void* layout, cublasLtMatrixLayoutAttribute_t attribute) {
  return static_cast<std::int64_t>(static_cast<const Described*>(layout)->get(attribute, std::uint64_t{0}));
}

}  // namespace

STAND_IN_EXPORT size_t cublasLtGetVersion() { return 10000 * CUBLAS_VER_MAJOR + 100 * CUBLAS_VER_MINOR; }

STAND_IN_EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute,
                                                        cudaDataType_t scales) {
  auto* const all = new Described;
  all->set(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, &compute, sizeof(compute));
  all->set(CUBLASLT_MATMUL_DESC_SCALE_TYPE, &scales, sizeof(scales));
  *made = reinterpret_cast<cublasLtMatmulDesc_t>(all);
  return CUBLAS_STATUS_SUCCESS;
}

STAND_IN_EXPORT cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t all,
                                                              cublasLtMatmulDescAttributes_t attribute,
                                                              const void* value, std::size_t bytes) {
  reinterpret_cast<Described*>(all)->set(attribute, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

STAND_IN_EXPORT cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t all) {
  delete reinterpret_cast<Described*>(all);
  return CUBLAS_STATUS_SUCCESS;
}

STAND_IN_EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type,
                                                          std::uint64_t rows, std::uint64_t columns, std::int64_t ld) {
  auto* const all = new Described;
  all->set(CUBLASLT_MATRIX_LAYOUT_TYPE, &type, sizeof(type));
  all->set(CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, sizeof(rows));
  all->set(CUBLASLT_MATRIX_LAYOUT_COLS, &columns, sizeof(columns));
  all->set(CUBLASLT_MATRIX_LAYOUT_LD, &ld, sizeof(ld));
  *made = reinterpret_cast<cublasLtMatrixLayout_t>(all);
  return CUBLAS_STATUS_SUCCESS;
}

STAND_IN_EXPORT cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t all,
                                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                                const void* value, std::size_t bytes) {
  reinterpret_cast<Described*>(all)->set(attribute, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

STAND_IN_EXPORT cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t all) {
  delete reinterpret_cast<Described*>(all);
  return CUBLAS_STATUS_SUCCESS;
}

STAND_IN_EXPORT cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  *made = reinterpret_cast<cublasLtMatmulPreference_t>(new Described);
  return CUBLAS_STATUS_SUCCESS;
}

STAND_IN_EXPORT cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t all,
                                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                                    const void* value, std::size_t bytes) {
  reinterpret_cast<Described*>(all)->set(attribute, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

STAND_IN_EXPORT cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t all) {
  delete reinterpret_cast<Described*>(all);
  return CUBLAS_STATUS_SUCCESS;
}

STAND_IN_EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                                              cublasLtMatmulPreference_t, int,
                                                              cublasLtMatmulHeuristicResult_t* found, int* count) {
  *found = cublasLtMatmulHeuristicResult_t{};
  found->state = CUBLAS_STATUS_SUCCESS;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

STAND_IN_EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t description, const void* alpha,
                                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                                              const cublasLtMatmulAlgo_t*, void*, std::size_t, cudaStream_t stream) {
  const Described& all = *reinterpret_cast<Described*>(description);
  const auto epilogue = all.get(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
  const auto scales = all.get(CUBLASLT_MATMUL_DESC_SCALE_TYPE, CUDA_R_32F);
  const bool has_bias = epilogue == CUBLASLT_EPILOGUE_BIAS;
  const bool is_plain = has_bias || epilogue == CUBLASLT_EPILOGUE_DEFAULT;
  if (!is_plain || all.values.contains(CUBLASLT_MATMUL_DESC_POINTER_MODE) || size_of(scales) < 4) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const bool a_is_transposed = is_transposed(all.get(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N));
  const bool b_is_transposed = is_transposed(all.get(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N));
  const Matrix result = matrix_of(d, d_layout);
  const Product product{
      .m = extent_of(d_layout, CUBLASLT_MATRIX_LAYOUT_ROWS),
      .n = extent_of(d_layout, CUBLASLT_MATRIX_LAYOUT_COLS),
      .k = extent_of(a_layout, a_is_transposed ? CUBLASLT_MATRIX_LAYOUT_ROWS : CUBLASLT_MATRIX_LAYOUT_COLS),
      .batches = reinterpret_cast<const Described*>(d_layout)->get(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, std::int32_t{1}),
      .alpha = scale(alpha, scales),
      .beta = scale(beta, scales),
      .a = matrix_of(a, a_layout, a_is_transposed),
      .b = matrix_of(b, b_layout, b_is_transposed),
      .c = matrix_of(c, c_layout),
      .d = result,
      .bias = has_bias ? all.get(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(nullptr)) : nullptr,
      .bias_type = all.get(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, result.type)};
  return run(product, stream);
}
