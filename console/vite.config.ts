import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

// `base: './'` makes every reference relative, so that one build works under any prefix: the gateway writes
// the prefix into <base href> of index.html.
export default defineConfig({
  base: './',
  plugins: [react()],
  build: { target: 'es2023', assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  worker: { format: 'es' },
  server: { proxy: { '/v1': { target: process.env.WEIR_URL ?? 'http://127.0.0.1:8080', ws: true } } },
  test: { environment: 'node', include: ['src/**/*.test.{ts,tsx}'] },
} as Parameters<typeof defineConfig>[0]);
