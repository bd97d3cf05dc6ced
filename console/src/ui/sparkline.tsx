/** The last values of a rate, oldest first. Only its shape: the number stands beside it. */
export function Sparkline({ values, label }: { values: readonly number[]; label: string }) {
  const width = 120;
  const height = 28;
  const top = Math.max(...values, 1e-9);
  const points = values.map((value, index) => {
    const x = values.length < 2 ? width : (index / (values.length - 1)) * width;
    return `${x.toFixed(1)},${(height - 2 - (value / top) * (height - 5)).toFixed(1)}`;
  });
  return (
    <svg
      className="spark"
      viewBox={`0 0 ${width} ${height}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={label}
    >
      {values.length > 1 && (
        <>
          <polygon className="spark-area" points={`0,${height} ${points.join(' ')} ${width},${height}`} />
          <polyline className="spark-line" points={points.join(' ')} />
        </>
      )}
    </svg>
  );
}
